// all_to_all: each rank copies its piece of every rank's operand into its place.
#include <atomic>

#include "tegula/kernels/cpu/common/collective.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const auto split = static_cast<int>(c.attrs->i("split"));
    const auto gather = static_cast<int>(c.attrs->i("gather"));
    const TensorRef& y = c.out[0];
    const int64_t share = y.shape[split], piece = c.in[0].shape[gather];
    for (size_t r = 0; r < met.all.size(); ++r) {
      const TensorRef mine =
          part_of(met.all[r].in, split, static_cast<int64_t>(met.index) * share, share);
      move_strided(mine, part_of(y, gather, static_cast<int64_t>(r) * piece, piece), *c.pool);
      if (r != met.index) met.all[r].sent_bytes->add(mine.numel() * size_bytes(y.dtype));
    }
    return true;
  });
}

void list(const KernelCall& c, int64_t index, int, std::vector<Move>& moves) {
  const auto split = static_cast<int>(c.attrs->i("split"));
  const auto gather = static_cast<int>(c.attrs->i("gather"));
  const TensorRef &x = c.in[0], &y = c.out[0];
  const int64_t share = y.shape[split], piece = x.shape[gather];
  for (int64_t r = 0; r < c.attrs->i("ranks"); ++r)
    list_strided(r, x.as<uint8_t>(), part_of(x, split, index * share, share),
                 part_of(y, gather, r * piece, piece), moves);
}
constexpr CollectiveMoves kMoves = {.list = list};

}  // namespace

extern constinit const KernelDef all_to_all_shared = {
    .name = "all_to_all_shared",
    .op = "all_to_all",
    .order = "exact",
    .doc = "each rank copies its piece of all operands in shared memory",
    .supports = supports_collective,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
