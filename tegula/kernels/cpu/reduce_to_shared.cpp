// reduce_to: the root sums all ranks' operands.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers&) {
    const TensorRef& y = c.out[0];
    const int64_t n = y.numel();
    if (met.index != static_cast<size_t>(c.attrs->i("root"))) {
      std::memset(y.data, 0, static_cast<size_t>(n * size_bytes(y.dtype)));
      return true;
    }
    in_parts(*c.pool, 0, n, [&](int64_t from, int64_t count) {
      reduce_run(met, "sum", from, count, at(y, from));
    });
    return true;
  });
}

int64_t workspace_bytes(const KernelQuery& q) {
  return terms_bytes(q, q.out[0].numel() * size_bytes(q.out[0].dtype));
}

void list(const KernelCall& c, int64_t index, int, std::vector<Move>& moves) {
  const TensorRef& y = c.out[0];
  const BroughtTerms terms(c, y.numel() * size_bytes(y.dtype), index);
  if (index != c.attrs->i("root")) return;
  for (int64_t r = 0; r < terms.n; ++r)
    if (r != index) moves.push_back(move_of(r, 0, terms.bytes, terms.of(r)));
}
void finish(const KernelCall& c, int64_t index, int) {
  const TensorRef& y = c.out[0];
  const int64_t size = size_bytes(y.dtype);
  const BroughtTerms terms(c, y.numel() * size, index);
  if (index != c.attrs->i("root")) {
    std::memset(y.data, 0, static_cast<size_t>(terms.bytes));
    return;
  }
  in_parts(*c.pool, 0, y.numel(), [&](int64_t from, int64_t count) {
    terms.reduce(y.dtype, "sum", at(c.in[0], from), from * size, count, at(y, from));
  });
}
constexpr CollectiveMoves kMoves = {.list = list, .finish = finish};

}  // namespace

extern constinit const KernelDef reduce_to_shared = {
    .name = "reduce_to_shared",
    .op = "reduce_to",
    .order = "tree",
    .doc = "the root sums all ranks' operands in shared memory",
    .supports = supports_collective,
    .workspace_bytes = workspace_bytes,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
