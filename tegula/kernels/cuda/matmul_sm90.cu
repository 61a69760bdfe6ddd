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
// Variant, by -D: as in matmul_sm90.cuh, and
//   TEGULA_F32_OUT   1: c is f32, its sums as they are, written from registers
#include "tegula/kernels/cuda/matmul_sm90.cuh"

namespace tegula::cuda {

constexpr bool kF32Out = TEGULA_F32_OUT;

struct Consumer : Multiplier {
  const TensorMap* c_map;
  u32 rounded[kTileN / 4];  // of the tile before

  __device__ Consumer(const MatmulSm90Params& p, const Shared& s, const TensorMap* c)
      : Multiplier(p, s), c_map(c) {}

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
    const bool leader = warp == 0 && elect_one();
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

  __device__ void scale_rows(int first_row) {
    const int r = first_row + int(16 * warp + lane / 4);
    const float scale[] = {r < p.m ? p.row_scale[r] : 0, r + 8 < p.m ? p.row_scale[r + 8] : 0};
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) d[i] *= scale[i / 2 % 2];
  }

  __device__ void run() {
    const int n_tiles = p.order.tiles_m * p.order.tiles_n;
    for (int index = blockIdx.x; index < n_tiles * p.n_splits; index += gridDim.x) {
#pragma unroll
      for (int i = 0; i < kBoxes; ++i) step(i == 0, [&] { write(i); });
      for (int i = kBoxes; i < p.n_steps; ++i) step(false, [] {});
      const TilePlace at = end_tile(index, n_tiles);
      if (p.row_scale != nullptr) scale_rows(at.m * kTileM + int(wg) * kRows);
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
    if (warp == 0 && elect_one()) tma_store_wait_read();
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
  if (threadIdx.x == 0) {
    prefetch_map(&a), prefetch_map(&b), prefetch_map(&c);
    s.open();
  }
  __syncthreads();
  begin_early();
  if (p.guard != nullptr && *p.guard == 0) return;

  const u32 warp = uniform(threadIdx.x / 32);
  if (warp < 4) {
    give_registers<kProducerRegisters>();
    if (warp == 0 && elect_one()) produce(p, s, &a, &b);
  } else {
    take_registers<kConsumerRegisters>();
    Consumer(p, s, &c).run();
  }
}
