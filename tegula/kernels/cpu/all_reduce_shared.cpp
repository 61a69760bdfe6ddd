// all_reduce: each rank sums its share of the elements from all ranks' operands, then copies the
// others' sums.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

std::pair<int64_t, int64_t> share(int64_t n, size_t index, size_t n_ranks) {
  const auto i = static_cast<int64_t>(index), of = static_cast<int64_t>(n_ranks);
  return {n * i / of, n * (i + 1) / of};
}

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers& peers) {
    const auto combine = c.attrs->get_or<std::string>("combine", "sum");
    const TensorRef& y = c.out[0];
    const int64_t n = y.numel(), size = size_bytes(y.dtype);
    const auto [lo, hi] = share(n, met.index, met.all.size());
    in_parts(*c.pool, lo, hi, [&](int64_t from, int64_t count) {
      reduce_run(met, combine, from, count, at(y, from));
    });
    if (!peers.meet(c.attrs->str("axis"))) return false;
    for (size_t r = 0; r < met.all.size(); ++r) {
      if (r == met.index) continue;
      const auto [from, to] = share(n, r, met.all.size());
      in_parts(*c.pool, from, to, [&](int64_t begin, int64_t count) {
        copy_from(met.all[r], at(met.all[r].out, begin), count * size, at(y, begin));
      });
    }
    return true;
  });
}

}  // namespace

extern constinit const KernelDef all_reduce_shared = {
    .name = "all_reduce_shared",
    .op = "all_reduce",
    .order = "tree",
    .doc = "each rank sums its share in shared memory and copies the others'",
    .supports = supports_collective,
    .launch = launch,
};

}  // namespace tegula::kernel
