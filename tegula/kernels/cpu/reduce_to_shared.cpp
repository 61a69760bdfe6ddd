// reduce_to: the root sums all ranks' operands.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const TensorRef& y = c.out[0];
    const int64_t n = y.numel();
    if (met.index != static_cast<size_t>(c.attrs->i("root"))) {
      std::memset(y.data, 0, static_cast<size_t>(n * size_bytes(y.dtype)));
      return true;
    }
    in_parts(*c.pool, 0, n, [&](int64_t from, int64_t count) {
      reduce_run(met, "sum", from, count, at(y, from));
    });
    return true;
  });
}

}  // namespace

extern constinit const KernelDef reduce_to_shared = {
    .name = "reduce_to_shared",
    .op = "reduce_to",
    .order = "tree",
    .doc = "the root sums all ranks' operands in shared memory",
    .supports = supports_collective,
    .launch = launch,
};

}  // namespace tegula::kernel
