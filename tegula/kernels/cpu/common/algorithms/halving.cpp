// Recursive halving and doubling, for any number of ranks: distances 1, 2, 4 … round a ring. What
// is gathered doubles, what is summed halves: few messages, and no element goes twice.
// [Bruck et al. 1997; Rabenseifner 2004; Thakur et al. 2005]
#include <algorithm>

#include "tegula/kernels/cpu/common/algorithms/all.h"

namespace tegula {

namespace {

using enum CollectiveKind;

int64_t n_steps(const CollectiveJob& job) { return rounds_of_tree(job.n_ranks); }
// Parts that a rank takes in the step of that distance.
int64_t n_taken(const CollectiveJob& job, int64_t distance) {
  return std::min(distance, job.n_ranks - distance);
}

// Sums hold what came in the steps before (the largest distance first) and its sum, in turns.
struct Halving {
  const CollectiveJob& job;
  FromRoot ranks;
  int64_t part_of(int64_t number, int64_t offset) const { return (number + offset) % job.n_ranks; }
  // Elements of `count` parts from that of rank `number` on.
  int64_t elements(int64_t number, int64_t count) const {
    int64_t n = 0;
    for (int64_t i = 0; i < count; ++i) n += job.size(part_of(number, i));
    return n;
  }
  // Where what comes in step k lies; its sum is behind it.
  int64_t came_at(int64_t number, int64_t step) const {
    int64_t at = 0;
    for (int64_t k = n_steps(job) - 1; k > step; --k)
      at += 2 * elements(number, n_taken(job, int64_t{1} << k));
    return at;
  }
  // A rank's sum so far of the part that is `offset` after its own, before step k.
  SpacePlace partial(int64_t number, int64_t offset, int64_t step) const {
    const int64_t taken = step + 1 < n_steps(job) ? n_taken(job, int64_t{2} << step) : 0;
    if (offset >= taken) return {Space::kOperand, job.begin(part_of(number, offset))};
    return {Space::kWorkspace,
            came_at(number, step + 1) + elements(number, taken) + elements(number, offset)};
  }
  void sum_step(int64_t rank, int64_t step, SpacePlace result, Round& out) const {
    const int64_t number = ranks.number(rank), distance = int64_t{1} << step;
    const int64_t giver = (number - distance + job.n_ranks) % job.n_ranks;
    const int64_t taken = n_taken(job, distance), all = elements(number, taken);
    int64_t at = came_at(number, step);
    for (int64_t i = 0; i < taken; ++i) {
      const int64_t n = job.size(part_of(number, i));
      const SpacePlace came{Space::kWorkspace, at};
      out.take(ranks.rank(giver), partial(giver, distance + i, step), came, n);
      out.add(partial(number, i, step), came,
              step == 0 ? result : SpacePlace{Space::kWorkspace, at + all}, n);
      at += n;
    }
  }
};

// Into the own place in the result, in the whole or alone.
void reduce_scatter(const CollectiveJob& job, FromRoot ranks, int64_t rank, int64_t round,
                    SpacePlace result, Round& out) {
  Halving{job, ranks}.sum_step(rank, n_steps(job) - 1 - round, result, out);
}

// Bruck: before step k a rank has the 2^k parts from its own on; `held` of them it has anyway.
void doubling_step(const CollectiveJob& job, FromRoot ranks, int64_t rank, int64_t step,
                   bool is_own_in_operand, int64_t held, Round& out) {
  const int64_t number = ranks.number(rank), distance = int64_t{1} << step;
  const int64_t giver = (number + distance) % job.n_ranks;
  for (int64_t i = 0; i < n_taken(job, distance); ++i) {
    const int64_t part = (giver + i) % job.n_ranks;
    if (part >= number && part < number + held) continue;
    const SpacePlace to{Space::kResult, job.begin(part)};
    out.take(ranks.rank(giver), i == 0 && is_own_in_operand ? SpacePlace{Space::kOperand, 0} : to,
             to, job.size(part));
  }
}

// Blocks by distance: those whose distance has bit k go on by 2^k. A block that has gone on lies in
// the workspace at [its last step][its distance].
struct Bruck {
  const CollectiveJob& job;
  int64_t block() const { return job.n / job.n_ranks; }
  // Where the block for distance d lies at a rank before step k; `number` is the rank's.
  SpacePlace before(int64_t rank, int64_t d, int64_t step) const {
    int64_t last = -1;
    for (int64_t k = 0; k < step; ++k)
      if (d >> k & 1) last = k;
    if (last < 0) return {Space::kOperand, (rank + d) % job.n_ranks * block()};
    return {Space::kWorkspace, (last * job.n_ranks + d) * block()};
  }
  void step(int64_t rank, int64_t step, Round& out) const {
    const int64_t distance = int64_t{1} << step, n = job.n_ranks;
    const int64_t giver = (rank - distance % n + n) % n;
    if (step == 0)
      out.take(rank, {Space::kOperand, rank * block()}, {Space::kResult, rank * block()}, block());
    for (int64_t d = distance; d < n; ++d) {
      if ((d >> step & 1) == 0) continue;
      // After its last step it is where it belongs: from the rank that is d before.
      const bool is_last = d >> (step + 1) == 0;
      out.take(giver, before(giver, d, step),
               is_last ? SpacePlace{Space::kResult, (rank - d + n) % n * block()}
                       : SpacePlace{Space::kWorkspace, (step * n + d) * block()},
               block());
    }
  }
};

int64_t n_rounds(const CollectiveJob& job) {
  if (job.n_ranks == 1) return 1;
  const bool is_two = job.kind == kAllReduce || job.kind == kBroadcast || job.kind == kReduce;
  return (is_two ? 2 : 1) * n_steps(job);
}

// The sums of a reduce are gathered behind what came.
int64_t gathered_at(const CollectiveJob& job, FromRoot ranks, int64_t rank) {
  return Halving{job, ranks}.came_at(ranks.number(rank), -1);
}

void reduce(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const FromRoot ranks{job.n_ranks, job.root};
  const int64_t number = ranks.number(rank);
  if (round < n_steps(job)) {
    const int64_t at = job.begin(number);
    const SpacePlace own = number == 0
                               ? SpacePlace{Space::kResult, at}
                               : SpacePlace{Space::kWorkspace, gathered_at(job, ranks, rank) + at};
    return reduce_scatter(job, ranks, rank, round, own, out);
  }
  const int64_t step = round - n_steps(job), distance = int64_t{1} << step;
  const int64_t giver = number + distance;
  if (number % (2 * distance) != 0 || giver >= job.n_ranks) return;
  const int64_t last = std::min(giver + distance, job.n_ranks), at = job.begin(giver);
  const int64_t giver_rank = ranks.rank(giver);
  out.take(giver_rank, {Space::kWorkspace, gathered_at(job, ranks, giver_rank) + at},
           number == 0 ? SpacePlace{Space::kResult, at}
                       : SpacePlace{Space::kWorkspace, gathered_at(job, ranks, rank) + at},
           job.begin(last) - at);
}

void list(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  if (job.n_ranks == 1) return direct_algorithm.list(job, rank, round, out);
  const FromRoot in_order{job.n_ranks, 0}, from_root{job.n_ranks, job.root};
  const int64_t steps = n_steps(job);
  switch (job.kind) {
    case kAllGather:
      if (round == 0)
        out.take(rank, {Space::kOperand, 0}, {Space::kResult, job.begin(rank)}, job.size(rank));
      return doubling_step(job, in_order, rank, round, round == 0, 1, out);
    case kReduceScatter:
      return reduce_scatter(job, in_order, rank, round, {Space::kResult, 0}, out);
    case kAllReduce:
      if (round < steps)
        return reduce_scatter(job, in_order, rank, round, {Space::kResult, job.begin(rank)}, out);
      return doubling_step(job, in_order, rank, round - steps, false, 1, out);
    case kBroadcast:
      // Scattered, then gathered by all, each part in its place. The root has all.
      if (rank == job.root) {
        if (round == 0) out.take(rank, {Space::kOperand, 0}, {Space::kResult, 0}, job.n);
        return;
      }
      if (round < steps) return mst::scatter_in_place(job, rank, round, out);
      return doubling_step(job, from_root, rank, round - steps, false,
                           mst::held(from_root.number(rank), job.n_ranks), out);
    case kReduce:
      return reduce(job, rank, round, out);
    case kAllToAll:
      return Bruck{job}.step(rank, round, out);
    default:
      return;
  }
}

int64_t workspace(const CollectiveJob& job, int64_t rank) {
  if (job.n_ranks == 1) return 0;
  const FromRoot in_order{job.n_ranks, 0}, from_root{job.n_ranks, job.root};
  switch (job.kind) {
    case kReduceScatter:
    case kAllReduce:
      return gathered_at(job, in_order, rank);
    case kReduce:
      return gathered_at(job, from_root, rank) + job.n;
    case kAllToAll:
      return n_steps(job) * job.n;
    default:
      return 0;
  }
}

AlgorithmPrice price(const CollectiveJob& job) {
  const auto n = static_cast<double>(job.n_ranks), log = static_cast<double>(n_steps(job));
  const double share = (n - 1) / n;
  switch (job.kind) {
    case kReduceScatter:
      return {log, share, share};
    case kAllReduce:
      return {2 * log, 2 * share, share};
    case kReduce:
      return {2 * log, 2 * share, share};
    case kBroadcast:
      return {2 * log, 2 * share, 0};
    case kAllToAll:
      return {log, log / 2, 0};
    default:
      return {log, share, 0};
  }
}

}  // namespace

const AlgorithmDef halving_algorithm = {
    .name = "halving",
    .doc = "recursive halving and doubling: few messages, no element twice",
    .does = [](CollectiveKind k) { return k != kScatter && k != kGather; },
    .adds_on_the_way = true,
    .n_rounds = n_rounds,
    .list = list,
    .workspace = workspace,
    .price = price,
};

}  // namespace tegula
