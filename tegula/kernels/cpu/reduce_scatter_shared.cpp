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

int64_t workspace_bytes(const KernelQuery& q) {
  return terms_bytes(q, q.out[0].numel() * size_bytes(q.out[0].dtype));
}

void list(const KernelCall& c, int64_t index, int, std::vector<Move>& moves) {
  const TensorRef &x = c.in[0], &y = c.out[0];
  const int64_t n = c.attrs->i("ranks"), size = size_bytes(x.dtype);
  const Runs runs(x, c.attrs->i("dim"), c.attrs->get_or<int64_t>("parts", 1), n);
  const BroughtTerms terms(c, y.numel() * size, index);
  for (int64_t r = 0; r < n; ++r)
    if (r != index)
      moves.push_back({.giver = r,
                       .from = runs.in_whole(0, index, n) * size,
                       .bytes = runs.run * size,
                       .stride = n * runs.run * size,
                       .count = runs.count(),
                       .to = terms.of(r),
                       .to_stride = runs.run * size});
}
void finish(const KernelCall& c, int64_t index, int) {
  const TensorRef &x = c.in[0], &y = c.out[0];
  const int64_t n = c.attrs->i("ranks"), size = size_bytes(x.dtype);
  const Runs runs(x, c.attrs->i("dim"), c.attrs->get_or<int64_t>("parts", 1), n);
  const BroughtTerms terms(c, y.numel() * size, index);
  const auto reduce = [&](int64_t i, int64_t from, int64_t count) {
    const int64_t in_share = runs.in_share(i) + from;
    terms.reduce(x.dtype, "sum", at(x, runs.in_whole(i, index, n) + from), in_share * size, count,
                 at(y, in_share));
  };
  if (runs.count() == 1)
    in_parts(*c.pool, 0, runs.run, [&](int64_t from, int64_t count) { reduce(0, from, count); });
  else
    c.pool->parallel_for(runs.count(), [&](int64_t i, int) { reduce(i, 0, runs.run); });
}
constexpr CollectiveMoves kMoves = {.list = list, .finish = finish};

}  // namespace

extern constinit const KernelDef reduce_scatter_shared = {
    .name = "reduce_scatter_shared",
    .op = "reduce_scatter",
    .order = "tree",
    .doc = "each rank sums its share in shared memory",
    .supports = supports_collective,
    .workspace_bytes = workspace_bytes,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
