// embedding_bwd: the rows of the gradient, added up per id.
#include <algorithm>
#include <cstring>

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  return q.in[0].dtype == DType::kF32 && q.in[0].is_contiguous() && q.in[1].is_contiguous() &&
         q.out[0].is_contiguous();
}

// Every thread adds its own columns of every token's row, so the order is that of the tokens.
void launch(const KernelCall& c) {
  const TensorRef &g = c.in[0], &ids = c.in[1], &out = c.out[0];
  const int64_t n = ids.numel(), v = out.shape[0], d = out.shape[1];
  constexpr int64_t kTile = 64;
  c.pool->parallel_for((d + kTile - 1) / kTile, [&](int64_t task, int) {
    const int64_t begin = task * kTile, width = std::min(kTile, d - begin);
    for (int64_t r = 0; r < v; ++r)
      std::memset(out.as<float>() + r * d + begin, 0, static_cast<size_t>(width) * sizeof(float));
    int64_t added = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t id = ids.dtype == DType::kI64 ? ids.as<int64_t>()[i] : ids.as<int32_t>()[i];
      if (id < 0 || id >= v) continue;
      const float* from = g.as<float>() + i * d + begin;
      float* to = out.as<float>() + id * d + begin;
      for (int64_t k = 0; k < width; ++k) to[k] += from[k];
      ++added;
    }
    c.counters->add(added * width, added * width);
  });
}
}  // namespace

extern constinit const KernelDef embedding_bwd_rows = {
    .name = "embedding_bwd_rows",
    .op = "embedding_bwd",
    .order = "chain",
    .doc = "columns over threads; tokens in ascending order",
    .supports = supports,
    .launch = launch,
};

}  // namespace tegula::kernel
