// all_reduce: each rank sums its share of the elements from all ranks' operands, then copies the
// others' sums.
#include "tegula/kernels/cpu/common/collective.h"

namespace tegula::kernel {

namespace {

// Share i of n of the elements.
std::pair<int64_t, int64_t> share_of(int64_t n_elements, int64_t i, int64_t n) {
  return {n_elements * i / n, n_elements * (i + 1) / n};
}

void launch(const KernelCall& c) {
  with_group(c, [&](const Peers::Met& met, Peers& peers) {
    const auto combine = c.attrs->get_or<std::string>("combine", "sum");
    const TensorRef& y = c.out[0];
    const int64_t n = y.numel(), size = size_bytes(y.dtype);
    const auto n_ranks = static_cast<int64_t>(met.all.size());
    const auto [lo, hi] = share_of(n, static_cast<int64_t>(met.index), n_ranks);
    in_parts(*c.pool, lo, hi, [&](int64_t from, int64_t count) {
      reduce_run(met, combine, from, count, at(y, from));
    });
    if (!peers.meet(c.attrs->str("axis"))) return false;
    for (size_t r = 0; r < met.all.size(); ++r) {
      if (r == met.index) continue;
      const auto [from, to] = share_of(n, static_cast<int64_t>(r), n_ranks);
      in_parts(*c.pool, from, to, [&](int64_t begin, int64_t count) {
        copy_from(met.all[r], at(met.all[r].out, begin), count * size, at(y, begin));
      });
    }
    return true;
  });
}

// The largest share.
int64_t share_bytes(const TensorRef& y, int64_t n_ranks) {
  return (y.numel() + n_ranks - 1) / n_ranks * size_bytes(y.dtype);
}
int64_t workspace_bytes(const KernelQuery& q) {
  return terms_bytes(q, share_bytes(q.out[0], q.attrs->i("ranks")));
}

// First the others' terms of this rank's share, then the others' sums.
void list(const KernelCall& c, int64_t index, int round, std::vector<Move>& moves) {
  const TensorRef& y = c.out[0];
  const int64_t n = c.attrs->i("ranks"), size = size_bytes(y.dtype);
  const BroughtTerms terms(c, share_bytes(y, n), index);
  for (int64_t r = 0; r < n; ++r) {
    if (r == index) continue;
    const auto [lo, hi] = share_of(y.numel(), round == 0 ? index : r, n);
    moves.push_back(move_of(r, lo * size, (hi - lo) * size, round == 0 ? terms.of(r) : at(y, lo)));
    if (round == 1) moves.back().of = Move::kResult;
  }
}
void finish(const KernelCall& c, int64_t index, int round) {
  if (round == 1) return;
  const TensorRef& y = c.out[0];
  const int64_t n = c.attrs->i("ranks"), size = size_bytes(y.dtype);
  const auto combine = c.attrs->get_or<std::string>("combine", "sum");
  const BroughtTerms terms(c, share_bytes(y, n), index);
  const auto [lo, hi] = share_of(y.numel(), index, n);
  in_parts(*c.pool, lo, hi, [&, lo = lo](int64_t from, int64_t count) {
    terms.reduce(y.dtype, combine, at(c.in[0], from), (from - lo) * size, count, at(y, from));
  });
}
constexpr CollectiveMoves kMoves = {
    .n_rounds = [](const KernelCall&) { return 2; }, .list = list, .finish = finish};

}  // namespace

extern constinit const KernelDef all_reduce_shared = {
    .name = "all_reduce_shared",
    .op = "all_reduce",
    .order = "tree",
    .doc = "each rank sums its share in shared memory and copies the others'",
    .supports = supports_collective,
    .workspace_bytes = workspace_bytes,
    .launch = launch,
    .moves = &kMoves,
};

}  // namespace tegula::kernel
