// Rung 3: within a cache tile, v1 × v2 sums at a time live in registers.
//
// A step of k loads v1 elements of a and v2 of b for v1·v2 multiply-adds, and no sum: over n³
// multiply-adds that is n³/v2 loads of a and n³/v1 of b. Memory reads stay those of rung 2.
// Its remaining cost: rows of b lie n floats apart, a new page and often the same cache set at each
// step of k. Panels (rung 4) make both operands contiguous.
#include "tegula/kernels/cpu/isa/dot_ladder.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
constexpr int kV1 = kLadderV1, kVectors = 2, kV2 = kVectors * kLanes;
static_assert(kB1 % kV1 == 0 && kB1 % kV2 == 0);

// sums[v1][v2]: chains of one shard. Rows past the last repeat it; columns past the last are 0.
void register_tile(const Matmul& x, int64_t i, int64_t j, int rows, int cols, int64_t k0,
                   float (&sums)[kV1][kV2]) {
  Vf acc[kV1][kVectors];
  const float* a[kV1];
  for (int r = 0; r < kV1; ++r) {
    a[r] = x.a + (i + std::min(r, rows - 1)) * x.lda;
    for (Vf& v : acc[r]) v = zero();
  }
  const bool is_whole = cols == kV2;
  for (int64_t k = k0; k < k0 + x.shard_k; ++k) {
    const float* row = x.b + k * x.ldb + j;
    Vf b[kVectors];
    for (int v = 0; v < kVectors; ++v)
      b[v] = is_whole ? load(row + v * kLanes)
                      : load_n(row + v * kLanes, std::clamp(cols - v * kLanes, 0, kLanes));
#pragma GCC unroll unrolled(8)
    for (int r = 0; r < kV1; ++r) {
      const Vf ar = broadcast(a[r] + k);
#pragma GCC unroll unrolled(2)
      for (int v = 0; v < kVectors; ++v) acc[r][v] = fma(ar, b[v], acc[r][v]);
    }
  }
  for (int r = 0; r < kV1; ++r)
    for (int v = 0; v < kVectors; ++v) store(sums[r] + v * kLanes, acc[r][v]);
}
}  // namespace

void dot_register_tiled(const KernelCall& call) {
  run_ladder(call, [](const Matmul& x, int64_t i, int64_t j, int rows, int cols) {
    float sums[kV1][kV2] __attribute__((aligned(64)));
    ShardTree<kV1 * kV2> tree;
    for (int c = 0; c < cols; c += kV2) {
      const int n_cols = std::min(kV2, cols - c);
      for (int r = 0; r < rows; r += kV1) {
        const int n_rows = std::min(kV1, rows - r);
        for (int64_t shard = 0; shard < x.n_shards; ++shard) {
          register_tile(x, i + r, j + c, n_rows, n_cols, shard * x.shard_k, sums);
          tree.add(shard, x.n_shards, sums[0]);
        }
        for (int t = 0; t < n_rows; ++t)
          std::copy_n(sums[t], n_cols, x.c + (i + r + t) * x.ldc + j + c);
      }
    }
  });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
