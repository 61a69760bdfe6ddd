// scatter_add: slices of y are added to x in the order of ids; threads over what no two ids share.
#include <algorithm>

#include "tegula/kernels/cpu/common/gather.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kColumns = 256;  // of the inner dims, in one task

void launch(const KernelCall& call) {
  const TensorRef &y = call.in[0], &x = call.out[0];
  const GatherCall c(*call.attrs, x, call.in[1], y);
  const int64_t parts = ceil_div(c.inner.count, kColumns);
  call.pool->parallel_for(c.outer.count * parts, [&](int64_t task, int) {
    const int64_t o = task / parts, first = task % parts * kColumns;
    const int64_t count = std::min(kColumns, c.inner.count - first);
    int64_t x_at[kColumns], y_at[kColumns];
    c.inner.offsets(first, count, kA, x_at), c.inner.offsets(first, count, kB, y_at);
    float* to = x.as<float>() + c.outer.offset(o, kA);
    for (int64_t n = 0; n < c.n; ++n)
      for (int64_t j = 0; j < count; ++j) to[n * c.n_stride + x_at[j]] = 0;
    const float* from = y.as<const float>() + c.outer.offset(o, kB);
    const int64_t ids = c.outer.offset(o, kOut);
    int64_t hits = 0;
    for (int64_t i = 0; i < c.index.count; ++i) {
      const int64_t id = c.id(ids, i);
      if (id < 0) continue;
      float* sum = to + id * c.n_stride;
      const float* row = from + c.index.offset(i, kB);
      for (int64_t j = 0; j < count; ++j) sum[x_at[j]] += row[y_at[j]];
      ++hits;
    }
    // Ids out of range are priced, because only the data tells them apart; they are not executed.
    call.counters->add(c.index.count * count, hits * count);
  });
}
}  // namespace

extern constinit const KernelDef scatter_add_strided{
    .name = "scatter_add_strided",
    .op = "scatter_add",
    .order = "row_chain",
    .doc = "ids in ascending order; threads over the other dims",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) { return q.in[0].dtype == DType::kF32 && gather_supported(q); },
    .launch = launch,
};

}  // namespace tegula::kernel
