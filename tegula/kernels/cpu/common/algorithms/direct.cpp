// Each rank takes from every other what it needs, all at once, and adds by our tree. Each pair of
// ranks has a link of its own: what the fullest of them carries is what it takes.
#include <algorithm>

#include "tegula/kernels/cpu/common/algorithms/all.h"

namespace tegula {

namespace {

using enum CollectiveKind;

int64_t n_rounds(const CollectiveJob& job) { return job.kind == kAllReduce ? 2 : 1; }

// Sums all ranks' operands' elements [at, at + n): the others' into the workspace, side by side,
// then the sum of all.
void sum_up(const CollectiveJob& job, int64_t rank, int64_t at, int64_t n, SpacePlace to,
            Round& out) {
  int64_t next = 0;
  const size_t first = out.terms.size();
  for (int64_t r = 0; r < job.n_ranks; ++r) {
    SpacePlace term{Space::kOperand, at};
    if (r != rank) {
      term = {Space::kWorkspace, next};
      out.take(r, {Space::kOperand, at}, term, n);
      next += n;
    }
    out.terms.push_back(term);
  }
  if (n > 0) out.sums.push_back({to, n, first, static_cast<size_t>(job.n_ranks)});
}

void list(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const SpacePlace operand{Space::kOperand, 0}, result{Space::kResult, 0};
  const int64_t begin = job.begin(rank), n = job.begin(rank + 1) - begin;
  switch (job.kind) {
    case kBroadcast:
      return out.take(job.root, operand, result, job.n);
    case kScatter:
      return out.take(job.root, {Space::kOperand, begin}, result, n);
    case kGather:
      if (rank != job.root) return;
      [[fallthrough]];
    case kAllGather:
      for (int64_t r = 0; r < job.n_ranks; ++r)
        out.take(r, operand, {Space::kResult, job.begin(r)}, job.size(r));
      return;
    case kReduce:
      if (rank == job.root) sum_up(job, rank, 0, job.n, result, out);
      return;
    case kReduceScatter:
      return sum_up(job, rank, begin, n, result, out);
    case kAllReduce:
      if (round == 0) return sum_up(job, rank, begin, n, {Space::kResult, begin}, out);
      for (int64_t r = 0; r < job.n_ranks; ++r) {
        const SpacePlace part{Space::kResult, job.begin(r)};
        if (r != rank) out.take(r, part, part, job.size(r));
      }
      return;
    case kAllToAll:
      for (int64_t r = 0; r < job.n_ranks; ++r)
        out.take(r, {Space::kOperand, job.in_operand(r, rank)},
                 {Space::kResult, job.in_result(r, rank)}, job.size(r, rank));
  }
}

int64_t workspace(const CollectiveJob& job, int64_t rank) {
  if (job.kind == kReduce) return rank == job.root ? (job.n_ranks - 1) * job.n : 0;
  const bool adds = job.kind == kReduceScatter || job.kind == kAllReduce;
  return adds ? (job.n_ranks - 1) * job.size(rank) : 0;
}

AlgorithmPrice price(const CollectiveJob& job) {
  const auto n = static_cast<double>(job.n_ranks);
  if (n == 1) return {};
  switch (job.kind) {
    case kBroadcast:
      return {1, 1, 0};
    case kReduce:
      return {1, 1, n - 1};
    case kReduceScatter:
      return {1, 1 / n, (n - 1) / n};
    case kAllReduce:
      return {2, 2 / n, (n - 1) / n};
    default:
      return {1, 1 / n, 0};
  }
}

}  // namespace

const AlgorithmDef direct_algorithm = {
    .name = "direct",
    .doc = "each rank takes from every other at once; our tree adds",
    .does = [](CollectiveKind) { return true; },
    .n_rounds = n_rounds,
    .list = list,
    .workspace = workspace,
    .price = price,
};

}  // namespace tegula
