// Tiles of 16-bit rows and their products by mma.sync, for the attention kernels of sm_80: a tile
// is [kRowBoxes][rows][64] in shared memory, each box swizzled as tma.cuh says, aligned to 1024
// bytes.
//
// Variant, by -D: TEGULA_HEAD_DIM; TEGULA_F16.
#pragma once

#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/ptx/mma.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"

namespace tegula::cuda {

constexpr int kRowBoxes = (TEGULA_HEAD_DIM + kBoxColumns - 1) / kBoxColumns;
constexpr int kRowSteps = TEGULA_HEAD_DIM / 16;

constexpr int kTileRowBytes = kRowBoxes * kRowBytes;  // of a tile

// By all kBlock threads of a block: kCount rows from `from` on, of which n_rows exist; zeros for
// the others and for columns past head_dim. A thread copies the same 16 bytes of every kStep-th
// row: one address, not one a copy.
template <int kCount, int kBlock>
__device__ inline void copy_rows(u32 to, const u16* from, long long stride, int n_rows,
                                 int head_dim) {
  constexpr int kStep = kBlock / 8;
  static_assert(kCount % kStep == 0);
  const int r = int(threadIdx.x) / 8, chunk = int(threadIdx.x) % 8;
  from += r * stride + 8 * chunk;
  to += swizzled(r, chunk);
#pragma unroll
  for (int i = 0; i < kCount; i += kStep, from += kStep * stride)
#pragma unroll
    for (int box = 0; box < kRowBoxes; ++box) {
      const int columns = min(max(head_dim - 64 * box - 8 * chunk, 0), 8);
      cp_async(to + box * (kCount * kRowBytes) + i * kRowBytes, from + 64 * box,
               r + i < n_rows ? 2 * columns : 0);
    }
}

// The offset that a lane adds to a tile's address, of 16 rows and two chunks: as the left operand,
// or the right one transposed; and as the right one.
__device__ inline u32 lane_of_rows(u32 lane) { return swizzled(lane & 15, lane >> 4); }
__device__ inline u32 lane_of_columns(u32 lane) {
  return swizzled((lane >> 4) * 8 + (lane & 7), lane >> 3 & 1);
}
// The same, 16 · d columns on.
template <int kRows>
__device__ inline u32 columns_on(u32 at, int d) {
  return (at ^ (d % 4 * 32)) + d / 4 * (kRows * kRowBytes);
}

// A value that the compiler takes for new each time: it would otherwise keep all addresses that
// come of it in registers that are needed for sums.
__device__ inline u32 renewed(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}

__device__ inline void store_shared(u32 to, u32 x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
}

// Two neighbouring tiles of 8 columns.
__device__ inline void mma_16x16(float* to, const u32* a, const u32 (&b)[4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half)
    mma_m16n8k16(reinterpret_cast<float(&)[4]>(to[4 * half]), a[0], a[1], a[2], a[3], b[2 * half],
                 b[2 * half + 1]);
}

// out[16][kN] of each group = rows[16][d] · tile[kN][d]ᵀ. `rows` is the first group's, one of a
// tile of kRows; the next group's are kApart further. `tile` is the first of kN of a tile of
// kTileRows. So many steps of 16 columns at once as kUnrolled says.
template <int kRows, int kTileRows, int kUnrolled, int kApart = 16, int kGroups, int kX>
__device__ inline void make_scores(float (&out)[kGroups][kX], u32 rows, u32 tile, u32 lane) {
  constexpr int kN = 2 * kX;
#pragma unroll
  for (int g = 0; g < kGroups; ++g)
#pragma unroll
    for (int i = 0; i < kX; ++i) out[g][i] = 0.f;
  rows += lane_of_rows(lane), tile += lane_of_columns(lane);
#pragma unroll kUnrolled
  for (int d = 0; d < kRowSteps; ++d) {
    u32 a[kGroups][4];
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      ldmatrix(columns_on<kRows>(rows, d) + g * kApart * kRowBytes, a[g]);
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      u32 b[4];
      ldmatrix(columns_on<kTileRows>(tile, d) + n * 16 * kRowBytes, b);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) mma_16x16(out[g] + 8 * n, a[g], b);
    }
  }
}

// A row's columns, all of them or the halves of which two warps take one each, go over whole boxes
// but for 96 columns: then halves of the middle box come first.
template <int kShares>
constexpr int kMiddleSteps = kRowSteps / kShares % 4;
// Step i of share `share`: its address in a tile, and its first column.
template <int kRows, int kShares>
__device__ inline u32 columns_of_share(u32 at, int share, int i) {
  if constexpr (kShares == 1) return columns_on<kRows>(at, i);
  constexpr int kMiddle = kMiddleSteps<kShares>, kBefore = kRowSteps / kShares / 4;
  if (i < kMiddle) return columns_on<kRows>(at ^ u32(share * kMiddle * 32), 4 * kBefore + i);
  constexpr int kFrom = kBefore + (kMiddle > 0 ? 1 : 0);
  return columns_on<kRows>(at + u32(share * kFrom * kRows * kRowBytes), i - kMiddle);
}
template <int kShares>
__device__ inline int column_of_share(int share, int i) {
  if constexpr (kShares == 1) return 16 * i;
  constexpr int kMiddle = kMiddleSteps<kShares>, kBefore = kRowSteps / kShares / 4;
  if (i < kMiddle) return 64 * kBefore + 16 * (share * kMiddle + i);
  return 64 * share * (kBefore + (kMiddle > 0 ? 1 : 0)) + 16 * (i - kMiddle);
}

// sum(g)[16][columns of a share] of each group += weights[16][kN] · tile[kN][d], the first of its
// kRows rows.
template <int kRows, int kShares = 1, int kGroups, int kWeights, class Sum>
__device__ inline void add_weighted(const Sum& sum, const u32 (&weights)[kGroups][kWeights],
                                    u32 tile, u32 lane, int share = 0) {
  tile += lane_of_rows(lane);
#pragma unroll
  for (int n = 0; n < kWeights / 4; ++n)
#pragma unroll
    for (int d = 0; d < kRowSteps / kShares; ++d) {
      u32 b[4];
      ldmatrix_transposed(columns_of_share<kRows, kShares>(tile, share, d) + n * 16 * kRowBytes, b);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) mma_16x16(sum(g) + 8 * d, weights[g] + 4 * n, b);
    }
}

}  // namespace tegula::cuda
