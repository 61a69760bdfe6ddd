// reduce_scatter: each rank sums its share of every run from all ranks' operands.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const TensorRef& x = c.in[0];
    const auto n = static_cast<int64_t>(met.all.size());
    const Runs runs(x, c.attrs->i("dim"), c.attrs->get_or<int64_t>("parts", 1), n);
    c.pool->parallel_for(runs.count(), [&](int64_t i, int) {
      reduce_run(met, "sum", runs.in_whole(i, static_cast<int64_t>(met.index), n), runs.run,
                 at(c.out[0], runs.in_share(i)));
    });
    return true;
  });
}

}  // namespace

extern constinit const KernelDef reduce_scatter_shared = {
    .name = "reduce_scatter_shared",
    .op = "reduce_scatter",
    .order = "tree",
    .doc = "each rank sums its share in shared memory",
    .supports = supports_collective,
    .launch = launch,
};

}  // namespace tegula::kernel
