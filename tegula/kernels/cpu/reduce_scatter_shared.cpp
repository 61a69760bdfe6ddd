// reduce_scatter: each rank sums its share of every run from all ranks' operands.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  if (keeps_alone(c)) return;
  Peers& peers = peers_of(c);
  const std::string& axis = c.attrs->str("axis");
  const TensorRef &x = c.in[0], &y = c.out[0];
  const Peers::Met met = peers.meet(axis, x, y);
  if (met.all.empty()) return;
  const auto n = static_cast<int64_t>(met.all.size());
  const Runs runs(x, c.attrs->i("dim"), c.attrs->get_or<int64_t>("parts", 1), n);
  c.pool->parallel_for(runs.count(), [&](int64_t i, int) {
    reduce_run(met, "sum", runs.in_whole(i, static_cast<int64_t>(met.index), n), runs.run,
               at(y, runs.in_share(i)));
  });
  peers.meet(axis);
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
