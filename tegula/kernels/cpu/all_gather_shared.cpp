// all_gather: each rank copies every rank's operand into its place.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const TensorRef& y = c.out[0];
    const auto n = static_cast<int64_t>(met.all.size());
    const Runs runs(y, c.attrs->i("dim"), c.attrs->get_or<int64_t>("parts", 1), n);
    const int64_t bytes = runs.run * size_bytes(y.dtype);
    c.pool->parallel_for(runs.count() * n, [&](int64_t i, int) {
      const int64_t rank = i % n, run = i / n;
      const Shown& giver = met.all[static_cast<size_t>(rank)];
      const uint8_t* from = at(giver.in, runs.in_share(run));
      uint8_t* to = at(y, runs.in_whole(run, rank, n));
      if (static_cast<size_t>(rank) == met.index)
        std::memcpy(to, from, static_cast<size_t>(bytes));
      else
        copy_from(giver, from, bytes, to);
    });
    return true;
  });
}

void list(const KernelCall& c, int64_t, int, std::vector<Move>& moves) {
  const TensorRef& y = c.out[0];
  const int64_t n = c.attrs->i("ranks"), size = size_bytes(y.dtype);
  const Runs runs(y, c.attrs->i("dim"), c.attrs->get_or<int64_t>("parts", 1), n);
  const int64_t bytes = runs.run * size;
  for (int64_t r = 0; r < n; ++r)
    moves.push_back({.giver = r,
                     .bytes = bytes,
                     .stride = bytes,
                     .count = runs.count(),
                     .to = at(y, runs.in_whole(0, r, n)),
                     .to_stride = n * bytes});
}
constexpr CollectiveMoves kMoves = {.list = list};

}  // namespace

extern constinit const KernelDef all_gather_shared = {
    .name = "all_gather_shared",
    .op = "all_gather",
    .order = "exact",
    .doc = "each rank copies all operands in shared memory",
    .supports = supports_collective,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
