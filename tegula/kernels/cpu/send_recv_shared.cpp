// send_recv: each rank copies the operand of the one that sends to it.
#include "tegula/kernels/cpu/common/collective.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  const std::vector<int64_t>& from = c.attrs->ints("from");
  const TensorRef& y = c.out[0];
  const int64_t bytes = y.numel() * size_bytes(y.dtype);
  const auto zeros = [&] { std::memset(y.data, 0, static_cast<size_t>(bytes)); };
  if (from.size() == 1) return from[0] < 0 ? zeros() : void(keeps_alone(c));
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const int64_t giver = from[met.index];
    if (giver < 0) return zeros(), true;
    if (giver == static_cast<int64_t>(met.index)) {
      move_strided(c.in[0], y, *c.pool);
      return true;
    }
    const Shown& shown = met.all[static_cast<size_t>(giver)];
    in_parts(*c.pool, 0, y.numel(), [&](int64_t first, int64_t n) {
      copy_from(shown, at(shown.in, first), n * size_bytes(y.dtype), at(y, first));
    });
    return true;
  });
}

void list(const KernelCall& c, int64_t index, int, std::vector<Move>& moves) {
  const TensorRef& y = c.out[0];
  const int64_t giver = c.attrs->ints("from")[static_cast<size_t>(index)];
  if (giver >= 0)
    moves.push_back(move_of(giver, 0, y.numel() * size_bytes(y.dtype), y.as<uint8_t>()));
}
void finish(const KernelCall& c, int64_t index, int) {
  const TensorRef& y = c.out[0];
  if (c.attrs->ints("from")[static_cast<size_t>(index)] < 0)
    std::memset(y.data, 0, static_cast<size_t>(y.numel() * size_bytes(y.dtype)));
}
constexpr CollectiveMoves kMoves = {.list = list, .finish = finish};

}  // namespace

extern constinit const KernelDef send_recv_shared = {
    .name = "send_recv_shared",
    .op = "send_recv",
    .order = "exact",
    .doc = "each rank copies one other's operand in shared memory",
    .supports = supports_collective,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
