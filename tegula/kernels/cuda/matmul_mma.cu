// C = A B on the tensor cores by mma.sync, as on Ampere: bf16 or f16 (TEGULA_F16) in, f32 sums,
// rounded to the same once.
//
//   a [m, k]; b [k, n] (TEGULA_B_MN_MAJOR 1) or its transposed [n, k] (0); c [m, n]:
//   stride 1 in the last dim, other strides multiples of 8, aligned to 16 bytes
//
// A block makes 128 × 256 outputs, its 8 warps 64 × 64 each. Slabs of 64 k pass through a ring of
// up to four stages: every thread copies its 16-byte pieces (cp.async) slabs ahead, and ldmatrix
// brings fragments into registers. Rows in shared memory are 128 bytes, their pieces swizzled, so
// that neither meets a bank conflict. Global reads: 2 m n k (1/256 + 1/128) / 2 elements; shared:
// 2 m n k / 64.
#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/matmul_tiles.cuh"
#include "tegula/kernels/cuda/ptx/cp_async.cuh"
#include "tegula/kernels/cuda/ptx/mma.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/tma.cuh"

namespace tegula::cuda {

constexpr bool kBMnMajor = TEGULA_B_MN_MAJOR;
constexpr int kTileM = 128, kTileN = 256, kTileK = 64;
// As many as shared memory holds: 227 KiB, 163 or 99. MatmulMmaKernel::n_stages knows them too.
#if __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 870
constexpr int kStages = 3;
#elif __CUDA_ARCH__ < 900 || __CUDA_ARCH__ >= 1200
constexpr int kStages = 2;
#else
constexpr int kStages = 4;
#endif
constexpr int kThreads = 256;
constexpr int kWarpTile = 64;
constexpr int kABytes = kTileM * kRowBytes, kBBytes = kTileN * kRowBytes;
constexpr int kStageBytes = kABytes + kBBytes;
constexpr int kBox = kTileK * kRowBytes;  // of MN-major B: 64 k × 64 n

struct MatmulMma {
  const MatmulMmaParams& p;
  u32 smem;  // [kStages] of A [kTileM][64] and B [kTileN][64] or [kTileN / 64][64][64]
  int first_row, first_column;
  float d[kWarpTile / 16][kWarpTile / 8][4] = {};  // [64 rows][64 columns] of a warp

  // kRows rows of 64 elements; what lies past the end of the tensor is zero.
  template <int kRows>
  static __device__ void fetch(u32 to, const u16* from, long long stride, int row0, int n_rows,
                               int column0, int n_columns) {
#pragma unroll
    for (int i = 0; i < kRows * 8 / kThreads; ++i) {
      const int piece = threadIdx.x + i * kThreads;
      const int row = row0 + piece / 8, column = column0 + piece % 8 * 8;
      const int inside = row < n_rows ? min(max(n_columns - column, 0), 8) : 0;
      cp_async(to + swizzled(piece / 8, piece % 8),
               inside > 0 ? from + row * stride + column : from, 2 * inside);
    }
  }

  __device__ void fetch_slab(int step) {
    const int k = step * kTileK;
    const u32 a = smem + step % kStages * kStageBytes, b = a + kABytes;
    if (k < p.k) {
      fetch<kTileM>(a, p.a, p.lda, first_row, p.m, k, p.k);
      if constexpr (kBMnMajor) {
#pragma unroll
        for (int box = 0; box < kTileN / 64; ++box)
          fetch<kTileK>(b + box * kBox, p.b, p.ldb, k, p.k, first_column + 64 * box, p.n);
      } else {
        fetch<kTileN>(b, p.b, p.ldb, first_column, p.n, k, p.k);
      }
    }
    cp_async_commit();
  }

  __device__ void multiply(int step) {
    const u32 a = smem + step % kStages * kStageBytes, b = a + kABytes;
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 row = warp / 4 * kWarpTile, column = warp % 4 * kWarpTile;
    if (kCounts && lane == 0)
      count_flops(2ULL * inside(first_row + int(row), p.m, kWarpTile) *
                  inside(first_column + int(column), p.n, kWarpTile) *
                  inside(step * kTileK, p.k, kTileK));
#pragma unroll
    for (int k = 0; k < kTileK / 16; ++k) {
      u32 x[kWarpTile / 16][4], y[kWarpTile / 16][4];  // [16 rows][16 k], [16 k][16 columns]
#pragma unroll
      for (int i = 0; i < kWarpTile / 16; ++i) {
        ldmatrix(a + swizzled(row + 16 * i + (lane & 15), 2 * k + (lane >> 4)), x[i]);
        if constexpr (kBMnMajor)
          ldmatrix_transposed(
              b + warp % 4 * kBox + swizzled(16 * k + (lane & 15), 2 * i + (lane >> 4)), y[i]);
        else
          ldmatrix(
              b + swizzled(column + 16 * i + (lane >> 4) * 8 + (lane & 7), 2 * k + (lane >> 3 & 1)),
              y[i]);
      }
#pragma unroll
      for (int i = 0; i < kWarpTile / 16; ++i)
#pragma unroll
        for (int j = 0; j < kWarpTile / 8; ++j)
          mma_m16n8k16(d[i][j], x[i][0], x[i][1], x[i][2], x[i][3], y[j / 2][j % 2 * 2],
                       y[j / 2][j % 2 * 2 + 1]);
    }
  }

  __device__ void run() {
    const int n_steps = (p.k + kTileK - 1) / kTileK;
#pragma unroll
    for (int step = 0; step < kStages - 1; ++step) fetch_slab(step);
    for (int step = 0; step < n_steps; ++step) {
      cp_async_wait<kStages - 2>();
      __syncthreads();  // the slab has landed for all, and all are done with the one before
      fetch_slab(step + kStages - 1);
      multiply(step);
    }
  }

  __device__ void write() const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kWarpTile / 16; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = first_row + warp / 4 * kWarpTile + 16 * i + lane / 4 + 8 * r;
        if (row >= p.m) continue;
        u16* c = p.c + row * p.ldc;
#pragma unroll
        for (int j = 0; j < kWarpTile / 8; ++j) {
          const int column = first_column + warp % 4 * kWarpTile + 8 * j + lane % 4 * 2;
          const u32 pair = pack_element(d[i][j][2 * r], d[i][j][2 * r + 1]);
          if (column + 1 < p.n)
            *reinterpret_cast<u32*>(c + column) = pair;
          else if (column < p.n)
            c[column] = u16(pair);
        }
      }
  }
};

}  // namespace tegula::cuda

using namespace tegula::cuda;

// A block a tile, of kThreads threads and kStages · kStageBytes of shared memory.
extern "C" __global__ void __launch_bounds__(kThreads, 1) matmul_mma(const MatmulMmaParams p) {
  extern __shared__ __align__(1024) char smem_bytes[];
  const TilePlace at = tile_place(p.order, blockIdx.x);
  MatmulMma matmul{p, smem_address(smem_bytes), at.m * kTileM, at.n * kTileN};
  matmul.run();
  matmul.write();
}
