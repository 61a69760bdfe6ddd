// embedding: a row of the table for each id; ids outside it give zeros.
#include <algorithm>
#include <cstring>

#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const TensorRef& table = q.in[0];
  return (table.stride[1] == 1 || table.shape[1] == 1) && q.in[1].is_contiguous() &&
         q.out[0].is_contiguous();
}

void launch(const KernelCall& c) {
  const TensorRef &table = c.in[0], &ids = c.in[1];
  const int64_t n = ids.numel(), rows = table.shape[0], size = size_bytes(table.dtype);
  const auto bytes = static_cast<size_t>(table.shape[1] * size);
  constexpr int64_t kTask = 64;
  c.pool->parallel_for((n + kTask - 1) / kTask, [&](int64_t task, int) {
    for (int64_t i = task * kTask; i < std::min(n, (task + 1) * kTask); ++i) {
      const int64_t id = ids.dtype == DType::kI64 ? ids.as<int64_t>()[i] : ids.as<int32_t>()[i];
      char* to = c.out[0].as<char>() + static_cast<size_t>(i) * bytes;
      if (id >= 0 && id < rows) {
        std::memcpy(to, table.as<char>() + id * table.stride[0] * size, bytes);
      } else {
        std::memset(to, 0, bytes);
      }
    }
  });
}
}  // namespace

extern constinit const KernelDef embedding_rows = {
    .name = "embedding_rows",
    .op = "embedding",
    .order = "exact",
    .doc = "one memcpy a token",
    .supports = supports,
    .launch = launch,
};

}  // namespace tegula::kernel
