// scatter_from: each rank copies its share of every run of the root's operand.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const TensorRef& y = c.out[0];
    const auto n = static_cast<int64_t>(met.all.size());
    const auto index = static_cast<int64_t>(met.index);
    const int64_t root = c.attrs->i("root");
    const Runs runs(c.in[0], c.attrs->i("dim"), 1, n);
    const Shown& giver = met.all[static_cast<size_t>(root)];
    // A share that is one run is copied in parts, so that threads share it.
    const int64_t size = size_bytes(y.dtype);
    const auto copy = [&](int64_t i, int64_t from, int64_t count) {
      const uint8_t* x = at(giver.in, runs.in_whole(i, index, n) + from);
      uint8_t* to = at(y, runs.in_share(i) + from);
      if (index == root)
        std::memcpy(to, x, static_cast<size_t>(count * size));
      else
        copy_from(giver, x, count * size, to);
    };
    if (runs.count() == 1)
      in_parts(*c.pool, 0, runs.run, [&](int64_t from, int64_t count) { copy(0, from, count); });
    else
      c.pool->parallel_for(runs.count(), [&](int64_t i, int) { copy(i, 0, runs.run); });
    return true;
  });
}

void list(const KernelCall& c, int64_t index, int, std::vector<Move>& moves) {
  const int64_t n = c.attrs->i("ranks"), size = size_bytes(c.in[0].dtype);
  const Runs runs(c.in[0], c.attrs->i("dim"), 1, n);
  moves.push_back({.giver = c.attrs->i("root"),
                   .from = runs.in_whole(0, index, n) * size,
                   .bytes = runs.run * size,
                   .stride = n * runs.run * size,
                   .count = runs.count(),
                   .to = c.out[0].as<uint8_t>(),
                   .to_stride = runs.run * size});
}
constexpr CollectiveMoves kMoves = {.list = list};

}  // namespace

extern constinit const KernelDef scatter_from_shared = {
    .name = "scatter_from_shared",
    .op = "scatter_from",
    .order = "exact",
    .doc = "each rank copies its share of the root's operand in shared memory",
    .supports = supports_collective,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
