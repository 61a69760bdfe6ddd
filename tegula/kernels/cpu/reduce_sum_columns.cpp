// reduce_sum over leading dims (bias and norm gradients), order: one ascending chain per output.
#include <algorithm>
#include <cstring>

#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

namespace {
// Dims 0 … k−1 are reduced, the rest is dense: a matrix [rows, columns] summed over rows.
bool supports(const KernelQuery& q) {
  const TensorRef& x = q.in[0];
  const auto& dims = q.attrs->ints("dims");
  for (size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<int64_t>(i)) return false;
  return x.dtype == DType::kF32 && x.is_contiguous() && q.out[0].is_contiguous() &&
         static_cast<int>(dims.size()) < x.rank;
}

void launch(const KernelCall& c) {
  const TensorRef& x = c.in[0];
  const int64_t columns = c.out[0].numel(), rows = columns ? x.numel() / columns : 0;
  constexpr int64_t kTile = 256;
  c.pool->parallel_for((columns + kTile - 1) / kTile, [&](int64_t task, int) {
    const int64_t begin = task * kTile, n = std::min(kTile, columns - begin);
    float acc[kTile] = {};
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = x.as<float>() + r * columns + begin;
      for (int64_t i = 0; i < n; ++i) acc[i] += row[i];
    }
    std::memcpy(c.out[0].as<float>() + begin, acc, static_cast<size_t>(n) * sizeof(float));
    c.counters->add(rows * n, rows * n);
  });
}
}  // namespace

extern constinit const KernelDef reduce_sum_columns = {
    .name = "reduce_sum_columns",
    .op = "reduce_sum",
    .order = "chain",
    .doc = "leading dims: an ascending chain per column, columns over threads",
    .supports = supports,
    .launch = launch,
};

}  // namespace tegula::kernel
