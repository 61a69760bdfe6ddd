// dynamic_update_slice: in place when x is the result (a donated KV cache), else x is copied first.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {
int64_t scalar(const TensorRef& t) {
  return t.dtype == DType::kI64 ? *t.as<int64_t>() : *t.as<int32_t>();
}

void launch(const KernelCall& c) {
  const TensorRef &x = c.in[0], &update = c.in[1];
  if (x.data != c.out[0].data) move_strided(x, c.out[0], *c.pool);
  TensorRef to = c.out[0];
  for (int d = 0; d < x.rank; ++d) {
    const int64_t room = x.shape[d] - update.shape[d];
    const int64_t start =
        std::max<int64_t>(0, std::min(scalar(c.in[static_cast<size_t>(d) + 2]), room));
    to = part_of(to, d, start, update.shape[d]);
  }
  move_strided(update, to, *c.pool);
}
}  // namespace

extern constinit const KernelDef update_slice_strided = {
    .name = "update_slice_strided",
    .op = "dynamic_update_slice",
    .order = "exact",
    .doc = "writes the update; copies x only if it is not in place",
    .supports = [](const KernelQuery&) { return true; },
    .launch = launch,
};

}  // namespace tegula::kernel
