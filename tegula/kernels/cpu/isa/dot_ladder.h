// The middle rungs of the matmul ladder: out[m, n] = a[m, k]·b[k, n], f32, for reading.
//
// The reads of a rung, in elements, for n × n matrices (Chen 2022, Deep Learning Systems, lecture
// on hardware acceleration; derived at each rung): "memory" is whatever lies beyond the cache that
// holds a block, "L1" what the multiply-adds load.
#pragma once

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/ladder.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Rows and columns of a cache tile, b1 of the formulas: so many rows of a (whole k) stay in L2
// while all of b goes by.
inline constexpr int kB1 = kLadderB1;

// Plain matrices: rows lda, ldb, ldc apart.
struct Matmul {
  const float *a, *b;
  float* c;
  int64_t m, n, k, lda, ldb, ldc;
  int64_t n_shards, shard_k;
};

// Calls block(i, j, rows, columns) for every kB1 × kB1 tile of the output, threads over rows.
template <class F>
static void for_each_block(const KernelCall& call, const Matmul& x, F&& block) {
  const int64_t row_blocks = (x.m + kB1 - 1) / kB1;
  call.pool->parallel_for(row_blocks, [&](int64_t i, int) {
    const auto rows = static_cast<int>(std::min<int64_t>(kB1, x.m - i * kB1));
    for (int64_t j = 0; j < x.n; j += kB1)
      block(i * kB1, j, rows, static_cast<int>(std::min<int64_t>(kB1, x.n - j)));
    const int64_t flops = rows * x.n * (2 * x.k + x.n_shards - 1);
    call.counters->add(flops, flops);
  });
}

// The tree over shards as a binary counter: a finished sum waits at its level until its neighbour
// is there. Returns whether `sums` is the whole.
template <int kFloats>
struct ShardTree {
  float waiting[3][kFloats];
  bool add(int64_t shard, int64_t n_shards, float* sums) {
    int level = 0;
    for (; (shard >> level & 1) != 0; ++level)
      for (int i = 0; i < kFloats; ++i) sums[i] = waiting[level][i] + sums[i];
    if (shard + 1 == n_shards) return true;
    std::copy_n(sums, kFloats, waiting[level]);
    return false;
  }
};

// Runs `block(matmul, i, j, rows, columns)` over a call that ladder_supports.
template <class F>
static void run_ladder(const KernelCall& call, F&& block) {
  const Contraction c = ladder_contraction(call);
  Matmul x{call.in[0].as<const float>(),
           call.in[1].as<const float>(),
           call.out[0].as<float>(),
           c.m.count,
           c.n.count,
           c.k.count,
           0,
           0,
           0,
           c.k_shards,
           c.shard_k()};
  c.m.is_linear(kA, &x.lda), c.k.is_linear(kB, &x.ldb), c.m.is_linear(kOut, &x.ldc);
  for_each_block(call, x,
                 [&](int64_t i, int64_t j, int rows, int cols) { block(x, i, j, rows, cols); });
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
