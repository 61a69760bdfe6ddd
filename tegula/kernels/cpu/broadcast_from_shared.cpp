// broadcast_from: each rank copies the root's operand.
#include <atomic>

#include "tegula/kernels/cpu/common/collective.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const auto root = static_cast<size_t>(c.attrs->i("root"));
    const Shown& shown = met.all[root];
    move_strided(shown.in, c.out[0], *c.pool);
    if (met.index != root) shown.sent_bytes->add(c.out[0].numel() * size_bytes(c.out[0].dtype));
    return true;
  });
}

void list(const KernelCall& c, int64_t, int, std::vector<Move>& moves) {
  const TensorRef& y = c.out[0];
  moves.push_back(move_of(c.attrs->i("root"), 0, y.numel() * size_bytes(y.dtype), y.as<uint8_t>()));
}
constexpr CollectiveMoves kMoves = {.list = list};

}  // namespace

extern constinit const KernelDef broadcast_from_shared = {
    .name = "broadcast_from_shared",
    .op = "broadcast_from",
    .order = "exact",
    .doc = "each rank copies the root's operand in shared memory",
    .supports = supports_collective,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
