// gather_to: the root copies every rank's operand into its place.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

// On a rank that is not the root; true: that was all.
bool is_zeroed(const KernelCall& c, int64_t index) {
  if (index == c.attrs->i("root")) return false;
  const TensorRef& y = c.out[0];
  std::memset(y.data, 0, static_cast<size_t>(y.numel() * size_bytes(y.dtype)));
  return true;
}

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    if (is_zeroed(c, static_cast<int64_t>(met.index))) return true;
    const TensorRef& y = c.out[0];
    const auto n = static_cast<int64_t>(met.all.size());
    const Runs runs(y, c.attrs->i("dim"), 1, n);
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

void list(const KernelCall& c, int64_t index, int, std::vector<Move>& moves) {
  if (index != c.attrs->i("root")) return;
  const TensorRef& y = c.out[0];
  const int64_t n = c.attrs->i("ranks");
  const Runs runs(y, c.attrs->i("dim"), 1, n);
  const int64_t bytes = runs.run * size_bytes(y.dtype);
  for (int64_t r = 0; r < n; ++r)
    moves.push_back({.giver = r,
                     .bytes = bytes,
                     .stride = bytes,
                     .count = runs.count(),
                     .to = at(y, runs.in_whole(0, r, n)),
                     .to_stride = n * bytes});
}
void finish(const KernelCall& c, int64_t index, int) { is_zeroed(c, index); }
constexpr CollectiveMoves kMoves = {.list = list, .finish = finish};

}  // namespace

extern constinit const KernelDef gather_to_shared = {
    .name = "gather_to_shared",
    .op = "gather_to",
    .order = "exact",
    .doc = "the root copies all operands in shared memory",
    .supports = supports_collective,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
