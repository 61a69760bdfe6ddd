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
//   TEGULA_EXP       1: c[i, j] = exp(sum - shift[i]), and what the rows of a tile add up to,
//   before
//                    they are rounded, in a fixed order: with a shift near a row's largest sum the
//                    softmax is c times one number a row, and no pass goes over c for it
#ifndef TEGULA_EXP
#define TEGULA_EXP 0
#endif
#include "tegula/kernels/cuda/matmul_sm90.cuh"

namespace tegula::cuda {

constexpr bool kF32Out = TEGULA_F32_OUT, kExp = TEGULA_EXP;

struct Consumer : Multiplier {
  const TensorMap* c_map;
  u32 rounded[kTileN / 4];  // of the tile before

  __device__ Consumer(const MatmulSm90Params& p, const Shared& s, const TensorMap* c)
      : Multiplier(p, s), c_map(c) {}

  // A box of which only the first columns are part of C, or only some rows are asked for. The copy
  // engine would write whole pieces of 16 bytes, and with them what lies past the end.
  __device__ void write_ragged(const char* box, int first) const {
#pragma unroll 1
    for (int i = threadIdx.x % 128; i < 64 * 64; i += 128) {
      const int r = row + i / 64, c = first + i % 64;
      if (r < p.m && c < p.n && (p.guard == nullptr || p.total[r] != p.total[r]))
        p.c[r * p.ldc + c] =
            *reinterpret_cast<const u16*>(box + swizzled(i / 64, i % 64 / 8) + i % 8 * 2);
    }
  }

  // Columns [64 box, 64 box + 64) of the rounded tile to global memory through shared memory.
  __device__ void write(int box) {
    if (column < 0) return;
    const bool leader = warp == 0 && elect_one();
    const int first = column + 64 * box;
    const bool is_ragged = (p.n % 8 != 0 && first + 64 > p.n) || p.guard != nullptr;
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

  // Adds what is there to the sums.
  __device__ void add_to_sums(int first_row, int first_column) {
    const int r = first_row + int(16 * warp + lane / 4), c = first_column + int(2 * (lane % 4));
    const float* const from = reinterpret_cast<const float*>(p.c);
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) {
      const int row = r + i / 2 % 2 * 8, column = c + i / 4 * 8 + i % 2;
      if (row < p.m && column < p.n) d[i] = from[row * p.ldc + column] + d[i];
    }
  }
  __device__ void write_rounded_sums(int first_row, int first_column) const {
    const int r = first_row + int(16 * warp + lane / 4), c = first_column + int(2 * (lane % 4));
#pragma unroll
    for (int i = 0; i < kTileN / 2; i += 2) {
      const int row = r + i / 2 % 2 * 8, column = c + i / 4 * 8;
      if (row >= p.m || column >= p.n) continue;
      u16* const to = p.c16 + row * p.ldc + column;
      const u32 pair = pack_element(d[i], d[i + 1]);
      if (column + 1 < p.n && p.ldc % 2 == 0) {
        *reinterpret_cast<u32*>(to) = pair;
        continue;
      }
      to[0] = static_cast<u16>(pair);
      if (column + 1 < p.n) to[1] = static_cast<u16>(pair >> 16);
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

  // A number for each of the two rows that a thread has sums of.
  struct OfRows {
    float at[2];
    __device__ OfRows(const float* from, int row, int m)
        : at{row < m ? from[row] : 0, row + 8 < m ? from[row + 8] : 0} {}
  };
  __device__ int row_of(const TilePlace& at) const {
    return at.m * kTileM + int(wg * kRows + 16 * warp + lane / 4);
  }

  __device__ void scale(const OfRows& scale) {
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) d[i] *= scale.at[i / 2 % 2];
  }

  // Counted are the 8 operations by which the head of a loss is priced: lse and its gradient.
  __device__ void exponentiate(const TilePlace& at, const OfRows& shift) {
    constexpr float kLog2e = 1.44269504f;
    const int first = at.n * kTileN, c = first + int(2 * (lane % 4)), r = row_of(at);
    if (first + kTileN > p.n) {
#pragma unroll
      for (int i = 0; i < kTileN / 2; ++i)
        if (c + i / 4 * 8 + i % 2 >= p.n) d[i] = kNegativeInfinity;
    }
    float sum[2] = {};
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) {
      d[i] = exp2_approx(__fmaf_rn(d[i], kLog2e, -shift.at[i / 2 % 2]));
      sum[i / 2 % 2] += d[i];
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
      if (lane % 4 == 0 && r + 8 * half < p.m)
        p.sums[static_cast<long long>(r + 8 * half) * p.order.tiles_n + at.n] = sum[half];
    }
    if (threadIdx.x % 128 == 0)
      count_flops(8ull * inside(r, p.m, kRows) * inside(first, p.n, kTileN));
  }

  __device__ void run() {
    const int n_tiles = p.order.tiles_m * p.order.tiles_n;
    for (int index = blockIdx.x; index < n_tiles * p.n_splits; index += gridDim.x) {
      // Asked for before the products, so that nothing waits for it after them.
      const float* const of_rows = kExp ? p.shift : p.row_scale;
      const OfRows factors(of_rows, row_of(tile_place(p.order, index % n_tiles)),
                           of_rows != nullptr ? p.m : 0);
#pragma unroll
      for (int i = 0; i < kBoxes; ++i) step(i == 0, [&] { write(i); });
      for (int i = kBoxes; i < p.n_steps; ++i) step(false, [] {});
      const TilePlace at = end_tile(index, n_tiles);
      if constexpr (kExp)
        exponentiate(at, factors);
      else if (of_rows != nullptr)
        scale(factors);
      if (kF32Out) {
        const int first_row = at.m * kTileM + int(wg) * kRows, first_column = at.n * kTileN;
        if (p.adds != 0) add_to_sums(first_row, first_column);
        if (p.c16 != nullptr)
          write_rounded_sums(first_row, first_column);
        else
          write_sums(index / n_tiles, first_row, first_column);
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
