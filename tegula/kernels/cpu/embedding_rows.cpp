// Rows of a table, copied; an id outside the table gives zeros.
#include <cstring>

#include "tegula/kernels/cpu/common/dot_plan.h"
#include "tegula/kernels/cpu/common/embedding.h"

namespace tegula::kernel {

namespace {
constexpr int64_t kPositions = 64;  // of one task

void copy_row(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
              int64_t n, size_t size) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(n) * size);
    return;
  }
  const auto bytes = static_cast<int64_t>(size);
  for (int64_t j = 0; j < n; ++j)
    std::memcpy(to + j * to_stride * bytes, from + j * from_stride * bytes, size);
}

void launch(const KernelCall& call) {
  const TensorRef &table = call.in[0], &y = call.out[0];
  const Lookup at(call.in[1], y, table.shape[0]);
  const int64_t n = table.shape[1], y_stride = y.stride[y.rank - 1];
  const auto size = static_cast<size_t>(size_bytes(table.dtype));
  const auto bytes = static_cast<int64_t>(size);
  const int64_t count = at.positions.count, run = call.pool->grain(kPositions);
  call.pool->parallel_for(ceil_div(count, run), [&](int64_t task, int) {
    for (int64_t i = task * run; i < count && i < (task + 1) * run; ++i) {
      const int64_t row = at.row(i);
      auto* to = static_cast<std::byte*>(y.data) + at.positions.offset(i, kB) * bytes;
      static constexpr std::byte kZero[8] = {};
      const auto* from =
          row < 0 ? kZero
                  : static_cast<const std::byte*>(table.data) + row * table.stride[0] * bytes;
      copy_row(from, row < 0 ? 0 : table.stride[1], to, y_stride, n, size);
    }
  });
}
}  // namespace

extern constinit const KernelDef embedding_rows{
    .name = "embedding_rows",
    .op = "embedding",
    .order = "exact",
    .doc = "rows of the table are copied; threads over positions",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return q.in[0].rank == 2 && ids_supported(q.in[1], q.out[0]) &&
                 q.in[0].dtype == q.out[0].dtype;
        },
    .launch = launch,
};

}  // namespace tegula::kernel
