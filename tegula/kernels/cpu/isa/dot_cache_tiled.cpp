// Rung 2: tiles of b1 × b1 outputs.
//
// For each b1 rows of a, all of b goes by. Those rows (b1·n floats) are read once and stay in
// cache, so a costs n² reads of memory in all; b is read once per block of rows, n/b1 times n²:
// together n² + n³/b1. Rung 1 is b1 = 1. The tile of sums lies in L1, and every multiply-add loads
// its sum and its b from there: 2·n³ loads, besides n³/b1 of a. That is what rung 3 removes.
#include "tegula/kernels/cpu/isa/dot_ladder.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// sums[r][c] = the chain of one shard, k outermost: a row of b meets all rows of a.
void cache_tile(const Matmul& x, int64_t i, int64_t j, int rows, int cols, int64_t k0,
                float (&sums)[kB1][kB1]) {
  for (auto& row : sums)
    for (int c = 0; c < kB1; c += kLanes) store(row + c, zero());
  for (int64_t k = k0; k < k0 + x.shard_k; ++k) {
    const float* b = x.b + k * x.ldb + j;
    for (int r = 0; r < rows; ++r) {
      const Vf a = broadcast(x.a + (i + r) * x.lda + k);  // one element, all lanes
      int c = 0;
      for (; c + kLanes <= cols; c += kLanes)
        store(sums[r] + c, fma(a, load(b + c), load(sums[r] + c)));
      if (c < cols) store(sums[r] + c, fma(a, load_n(b + c, cols - c), load(sums[r] + c)));
    }
  }
}
}  // namespace

void dot_cache_tiled(const KernelCall& call) {
  run_ladder(call, [](const Matmul& x, int64_t i, int64_t j, int rows, int cols) {
    // One place, whatever the compiler does with stacks: what stays in cache is counted by address.
    alignas(64) static thread_local float sums[kB1][kB1];
    ShardTree<kB1 * kB1> tree;
    for (int64_t shard = 0; shard < x.n_shards; ++shard) {
      cache_tile(x, i, j, rows, cols, shard * x.shard_k, sums);
      tree.add(shard, x.n_shards, sums[0]);
    }
    for (int r = 0; r < rows; ++r) std::copy_n(sums[r], cols, x.c + (i + r) * x.ldc + j);
  });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
