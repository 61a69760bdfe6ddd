// top_k by selection: each of the k passes over a row finds the first element, in the order of the
// result, behind the one found before. For few of many (experts, sampling): k·n compares, no
// memory.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kTaskElements = 8192;

// Does element (p, i) come before (q, j)? Larger first, NaN before all, the lower index among
// equals.
bool before(float p, int64_t i, float q, int64_t j) {
  const bool p_nan = p != p, q_nan = q != q;
  if (p_nan || q_nan) return p_nan != q_nan ? p_nan : i < j;
  return p != q ? p > q : i < j;
}

// Offset of a row, counted over all dims but the last.
int64_t row_offset(const TensorRef& t, int64_t row) {
  int64_t offset = 0;
  for (int d = t.rank - 2; d >= 0; --d) offset += row % t.shape[d] * t.stride[d], row /= t.shape[d];
  return offset;
}

void launch(const KernelCall& c) {
  const TensorRef &x = c.in[0], &values = c.out[0], &indices = c.out[1];
  const int last = x.rank - 1;
  const int64_t n = x.shape[last], k = values.shape[last];
  if (n == 0 || k == 0 || x.numel() == 0) return;
  const int64_t rows = x.numel() / n, at_once = c.pool->grain(kTaskElements) / (n * k) + 1;
  c.pool->parallel_for((rows + at_once - 1) / at_once, [&](int64_t task, int) {
    for (int64_t r = task * at_once; r < std::min(rows, (task + 1) * at_once); ++r) {
      const float* row = x.as<const float>() + row_offset(x, r);
      float* value = values.as<float>() + row_offset(values, r);
      int32_t* index = indices.as<int32_t>() + row_offset(indices, r);
      const int64_t step = x.stride[last];
      for (int64_t j = 0, found = -1; j < k; ++j) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; ++i)
          if ((found < 0 || before(row[found * step], found, row[i * step], i)) &&
              (best < 0 || before(row[i * step], i, row[best * step], best)))
            best = i;
        found = best;
        value[j * values.stride[last]] = row[found * step];
        index[j * indices.stride[last]] = static_cast<int32_t>(found);
      }
    }
  });
}
}  // namespace

extern constinit const KernelDef top_k_rows{
    .name = "top_k_rows",
    .op = "top_k",
    .order = "exact",
    .doc = "selection, one pass over the row for each of the k; threads over rows",
    .priority = 100,
    .supports = [](const KernelQuery& q) { return q.in[0].dtype == DType::kF32; },
    .launch = launch,
};

}  // namespace tegula::kernel
