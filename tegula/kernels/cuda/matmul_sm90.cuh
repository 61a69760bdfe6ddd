// Shared by the products on Hopper: the producer, and what a consumer does with a slab.
// matmul_sm90.cu and matmul_fused_sm90.cuh say the rest.
//
// Variant, by -D:
//   TEGULA_TILE_N                        columns of a tile: 128, 192, 256
//   TEGULA_STAGES                        slabs in shared memory
//   TEGULA_A_MN_MAJOR, TEGULA_B_MN_MAJOR 0 | 1
//   TEGULA_F16                           1: f16, not bf16
#pragma once

#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/matmul_tiles.cuh"
#include "tegula/kernels/cuda/ptx/mbarrier.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"
#include "tegula/kernels/cuda/ptx/wgmma.cuh"

namespace tegula::cuda {

constexpr int kTileN = TEGULA_TILE_N;
constexpr int kStages = TEGULA_STAGES;
constexpr bool kAMnMajor = TEGULA_A_MN_MAJOR, kBMnMajor = TEGULA_B_MN_MAJOR;

constexpr int kConsumers = 2;
constexpr int kRows = 64;                   // rows of a consumer
constexpr int kTileM = kRows * kConsumers;  // rows of a tile
constexpr int kTileK = 64;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr int kABytes = kTileM * kRowBytes, kBBytes = kTileN * kRowBytes;
constexpr int kStageBytes = kABytes + kBBytes;
constexpr int kBoxBytes = 64 * kRowBytes;  // 64 × 64 elements
constexpr int kBoxes = kTileN / 64;        // of C, per consumer
constexpr int kBarrierBytes = 256;
constexpr int kOutBoxes = kBoxes % 2 == 0 ? 2 : 3;  // of these, on their way at once
static_assert(kTileN % 64 == 0 && kBoxes % kOutBoxes == 0);

struct Shared {
  static constexpr int kOutBytes = kConsumers * kOutBoxes * kBoxBytes;
  static_assert(kStages * kStageBytes + kOutBytes + kBarrierBytes + 1024 <= 227 * 1024);
  char* stages;           // [kStages] of A [kTileM][64] or [kTileM / 64][64][64], and B likewise
  char* out;              // [kConsumers][kOutBoxes][64][64]
  Barrier *full, *empty;  // [kStages]

  __device__ explicit Shared(char* base) {
    stages = base + ((1024 - (smem_address(base) & 1023)) & 1023);
    out = stages + kStages * kStageBytes;
    full = reinterpret_cast<Barrier*>(out + kOutBytes);
    empty = full + kStages;
  }

  // By one thread, before all others go on.
  __device__ void open() const {
    for (int i = 0; i < kStages; ++i)
      barrier_init(full + i, 1), barrier_init(empty + i, 4 * kConsumers);
    barrier_init_fence();
  }
};

// ---- Producer ----------------------------------------------------------------------------------

// A slab of A or B: kExtent rows or columns of C, from `first` on, by 64 k.
template <bool kMnMajor, int kExtent>
__device__ inline void fetch(char* tile, const TensorMap* map, Barrier* full, int first, int k) {
  constexpr int kBox = kMnMajor ? 64 : kExtent;
#pragma unroll
  for (int i = 0; i < kExtent; i += kBox)
    tma_load(tile + i * kRowBytes, map, full, kEvictNormal, kMnMajor ? first + i : k,
             kMnMajor ? k : first + i, 0, 0);
}

__device__ inline void produce(const MatmulSm90Params& p, const Shared& s, const TensorMap* a,
                               const TensorMap* b) {
  Ring<kStages> ring;
  const int n_tiles = p.order.tiles_m * p.order.tiles_n;
  for (int index = blockIdx.x; index < n_tiles * p.n_splits; index += gridDim.x) {
    const TilePlace at = tile_place(p.order, index % n_tiles);
    const int first = index / n_tiles * p.n_steps;
    for (int step = first; step < first + p.n_steps; ++step) {
      barrier_wait(s.empty + ring.slot, ring.parity ^ 1);
      Barrier* full = s.full + ring.slot;
      char* slab = s.stages + ring.slot * kStageBytes;
      barrier_arrive_expect(full, kStageBytes);
      fetch<kAMnMajor, kTileM>(slab, a, full, at.m * kTileM, step * kTileK);
      fetch<kBMnMajor, kTileN>(slab + kABytes, b, full, at.n * kTileN, step * kTileK);
      ring.advance();
    }
  }
}

// ---- Consumer ----------------------------------------------------------------------------------

struct Multiplier {
  const MatmulSm90Params& p;
  const Shared& s;
  u32 wg;    // 0..kConsumers-1
  u32 lane;  // 0..31
  u32 warp;  // 0..3
  Ring<kStages> ring;
  float d[kTileN / 2];       // sums [64 rows][kTileN]
  int row = 0, column = -1;  // where the tile before begins; column < 0: there is none

  __device__ Multiplier(const MatmulSm90Params& p, const Shared& s)
      : p(p),
        s(s),
        wg(uniform(threadIdx.x / 128) - 1),
        lane(threadIdx.x % 32),
        warp(uniform(threadIdx.x / 32) % 4) {}

  // d[64][kTileN] (+)= A[64][64] B[64][kTileN] of a slab.
  __device__ void issue(bool accumulate) {
    const u32 slab = smem_address(s.stages) + ring.slot * kStageBytes;
    const SmemOperand a(slab + wg * (kRows * kRowBytes), 16, 8 * kRowBytes);
    const SmemOperand b(slab + kABytes, kBoxBytes, 8 * kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTileK / 16; ++k)
      Wgmma<kTileN>::template ss<kAMnMajor, kBMnMajor>(
          d, a.at(k * (kAMnMajor ? 16 * kRowBytes : 32)),
          b.at(k * (kBMnMajor ? 16 * kRowBytes : 32)), accumulate || k > 0);
    wgmma_commit();
  }

  // The slot used before the present one is no longer read by this warp.
  __device__ void release_last() const {
    if (lane == 0) barrier_arrive(s.empty + (ring.slot == 0 ? kStages - 1 : ring.slot - 1));
  }

  // Products of a slab are issued; `meanwhile` runs while they, and those of the slab before, are
  // made; `rest` when the slab before is done and its slot given back.
  template <class Work>
  __device__ void step(bool is_first, Work meanwhile) {
    step(is_first, meanwhile, [] {});
  }
  template <class Work, class Rest>
  __device__ void step(bool is_first, Work meanwhile, Rest rest) {
    barrier_wait(s.full + ring.slot, ring.parity);
    issue(!is_first);
    meanwhile();
    wgmma_wait<1>();
    if (!is_first) release_last();
    rest();
    ring.advance();
  }

  // Counts what a tile's slabs came to. The first product of a part of k begins its sum; the
  // addition is that of the parts.
  __device__ void count(int split, int first_row, int first_column) const {
    // A tile that a guard lets through was counted when it was made first.
    if (!kCounts || threadIdx.x % 128 != 0 || p.guard != nullptr) return;
    const int k = inside(split * p.n_steps * kTileK, p.k, p.n_steps * kTileK);
    count_flops(u64(2 * k - (p.n_splits > 1)) * inside(first_row, p.m, kRows) *
                inside(first_column, p.n, kTileN));
  }

  // The last slab's products are made; `index` is that of the tile among n_tiles of each part of k.
  __device__ TilePlace end_tile(int index, int n_tiles) {
    wgmma_wait<0>();
    fence_registers(d);
    release_last();
    const TilePlace at = tile_place(p.order, index % n_tiles);
    count(index / n_tiles, at.m * kTileM + int(wg) * kRows, at.n * kTileN);
    return at;
  }
};

}  // namespace tegula::cuda
