// C = A B for bf16 or f16 on Hopper: the top rung of the matmul ladder. docs/kernels/matmul_cuda.md
// says what bounds it and what each part gave.
//
//   a [m, k] or its transposed [k, m] (MN-major), b [k, n] (MN-major) or its transposed [n, k],
//   c [m, n]: stride 1 in the last dim, other strides multiples of 8, aligned to 16 bytes
//
// f32 sums over ascending k, 16 at a time; the same bits in every run. The copy engine fills what
// lies past the end with zeros and does not write it, so any m, n and k will do.
//
// A block has one warpgroup of which one thread asks the copy engine for slabs of 64 k, and two
// that own 64 rows of a tile each and keep their sums in registers. Blocks stay for the whole
// launch. A finished tile is rounded at once, which frees its sums: the products of the
// next tile start, and while the tensor cores make them, the same threads write the tile out
// through shared memory.
//
// Variant, by -D:
//   TEGULA_TILE_N                        columns of a tile: 128, 192, 256
//   TEGULA_STAGES                        slabs in shared memory
//   TEGULA_A_MN_MAJOR, TEGULA_B_MN_MAJOR 0 | 1
//   TEGULA_F32_OUT                       1: c is f32, its sums as they are, written from registers
//   TEGULA_F16                           1: f16, not bf16
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
constexpr bool kF32Out = TEGULA_F32_OUT;

constexpr int kConsumers = 2;
constexpr int kRows = 64;                   // rows of a consumer
constexpr int kTileM = kRows * kConsumers;  // rows of a tile
constexpr int kTileK = 64;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr int kABytes = kTileM * kRowBytes, kBBytes = kTileN * kRowBytes;
constexpr int kStageBytes = kABytes + kBBytes;
constexpr int kBoxBytes = 64 * kRowBytes;           // 64 × 64 elements
constexpr int kBoxes = kTileN / 64;                 // of C, per consumer
constexpr int kOutBoxes = kBoxes % 2 == 0 ? 2 : 3;  // of them on their way at once
constexpr int kOutBytes = kConsumers * kOutBoxes * kBoxBytes;
constexpr int kBarrierBytes = 256;
static_assert(kStages * kStageBytes + kOutBytes + kBarrierBytes + 1024 <= 227 * 1024);
static_assert(kTileN % 64 == 0 && kBoxes % kOutBoxes == 0);

struct Shared {
  char* stages;           // [kStages] of A [kTileM][64] or [kTileM / 64][64][64], and B likewise
  char* out;              // [kConsumers][kOutBoxes][64][64]
  Barrier *full, *empty;  // [kStages]

  __device__ explicit Shared(char* base) {
    stages = base + ((1024 - (smem_address(base) & 1023)) & 1023);
    out = stages + kStages * kStageBytes;
    full = reinterpret_cast<Barrier*>(out + kOutBytes);
    empty = full + kStages;
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

struct Consumer {
  const MatmulSm90Params& p;
  const Shared& s;
  const TensorMap* c_map;
  u32 wg;    // 0..kConsumers-1
  u32 lane;  // 0..31
  u32 warp;  // 0..3
  Ring<kStages> ring;
  float d[kTileN / 2];       // sums [64 rows][kTileN]
  u32 rounded[kTileN / 4];   // of the tile before
  int row = 0, column = -1;  // where that begins; column < 0: there is none

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
  // made.
  template <class Work>
  __device__ void step(bool is_first, Work meanwhile) {
    barrier_wait(s.full + ring.slot, ring.parity);
    issue(!is_first);
    meanwhile();
    wgmma_wait<1>();
    if (!is_first) release_last();
    ring.advance();
  }

  // A box of which only the first columns are part of C. The copy engine would write whole pieces
  // of 16 bytes, and with them what lies past the end.
  __device__ void write_ragged(const char* box, int first) const {
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < 64 * 64; i += 128) {
      const int r = row + i / 64, c = first + i % 64;
      if (r < p.m && c < p.n)
        p.c[r * p.ldc + c] =
            *reinterpret_cast<const u16*>(box + swizzled(i / 64, i % 64 / 8) + i % 8 * 2);
    }
  }

  // Columns [64 box, 64 box + 64) of the rounded tile to global memory through shared memory.
  __device__ void write(int box) {
    if (column < 0) return;
    const bool leader = warp == 0 && lane == 0;
    const int first = column + 64 * box;
    const bool is_ragged = p.n % 8 != 0 && first + 64 > p.n;
    char* to = s.out + (wg * kOutBoxes + box % kOutBoxes) * kBoxBytes;
    if (leader) tma_store_wait_read<kOutBoxes - 1>();
    named_sync(1 + wg, 128);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32* x = rounded + 16 * box + 4 * i;
      stmatrix(smem_address(to) + swizzled(16 * warp + (lane & 15), 2 * i + (lane >> 4)), x[0],
               x[1], x[2], x[3]);
    }
    fence_async_proxy();
    named_sync(1 + wg, 128);
    if (is_ragged) write_ragged(to, first);
    if (leader) {
      if (!is_ragged) tma_store(c_map, to, first, row, 0, 0);
      tma_store_commit();  // a group for each box, also an empty one: tma_store_wait_read counts
                           // them
    }
  }

  // Sums as they are, from registers: pairs of neighbouring columns, 32 bytes of a row at a time.
  __device__ void write_sums(int split, int first_row, int first_column) const {
    const int r = first_row + 16 * warp + lane / 4, c = first_column + 2 * (lane % 4);
    float* const out = reinterpret_cast<float*>(p.c) + split * p.split_stride;
    const bool are_pairs = p.ldc % 2 == 0 && reinterpret_cast<unsigned long long>(out) % 8 == 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (r + 8 * half >= p.m) continue;
      float* const to = out + (r + 8 * half) * p.ldc;
#pragma unroll
      for (int j = 0; j < kTileN / 8; ++j) {
        const int at = c + 8 * j;
        const float x = d[4 * j + 2 * half], y = d[4 * j + 2 * half + 1];
        if (are_pairs && at + 1 < p.n) {
          *reinterpret_cast<float2*>(to + at) = float2{x, y};
        } else {
          if (at < p.n) to[at] = x;
          if (at + 1 < p.n) to[at + 1] = y;
        }
      }
    }
  }

  // What a tile's slabs came to. The first product of a part of k begins its sum; the addition is
  // that of the parts.
  __device__ void count(int split, int first_row, int first_column) const {
    if (!kCounts || threadIdx.x % 128 != 0) return;
    const int k = inside(split * p.n_steps * kTileK, p.k, p.n_steps * kTileK);
    count_flops(u64(2 * k - (p.n_splits > 1)) * inside(first_row, p.m, kRows) *
                inside(first_column, p.n, kTileN));
  }

  __device__ void run() {
    const int n_tiles = p.order.tiles_m * p.order.tiles_n;
    for (int index = blockIdx.x; index < n_tiles * p.n_splits; index += gridDim.x) {
#pragma unroll
      for (int i = 0; i < kBoxes; ++i) step(i == 0, [&] { write(i); });
      for (int i = kBoxes; i < p.n_steps; ++i) step(false, [] {});
      wgmma_wait<0>();
      fence_registers(d);
      release_last();
      const TilePlace at = tile_place(p.order, index % n_tiles);
      count(index / n_tiles, at.m * kTileM + int(wg) * kRows, at.n * kTileN);
      if (kF32Out) {
        write_sums(index / n_tiles, at.m * kTileM + int(wg) * kRows, at.n * kTileN);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kTileN / 4; ++i) rounded[i] = pack_element(d[2 * i], d[2 * i + 1]);
      row = at.m * kTileM + int(wg) * kRows;
      column = at.n * kTileN;
    }
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) write(i);
    if (warp == 0 && lane == 0) tma_store_wait_read();
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// At most one block per multiprocessor, of kThreads threads.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    matmul_sm90(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                const __grid_constant__ TensorMap c, const MatmulSm90Params p) {
  extern __shared__ char smem[];
  const Shared s(smem);
  const u32 warp = uniform(threadIdx.x / 32);
  if (threadIdx.x == 0) {
    prefetch_map(&a), prefetch_map(&b), prefetch_map(&c);
    for (int i = 0; i < kStages; ++i)
      barrier_init(s.full + i, 1), barrier_init(s.empty + i, 4 * kConsumers);
    barrier_init_fence();
  }
  __syncthreads();
  begin_early();

  if (warp < 4) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x == 0) produce(p, s, &a, &b);
  } else {
    take_registers<kConsumerRegisters>();
    Consumer consumer{p, s, &c, warp / 4 - 1, threadIdx.x % 32, warp % 4};
    consumer.run();
  }
}
