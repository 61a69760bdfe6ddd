// A minimum spanning tree: in each round, whoever has it gives to one that has not. For short
// vectors, since messages are few. [Chan et al. 2007, section 4.1]
#include <algorithm>

#include "tegula/kernels/cpu/common/algorithms/all.h"

namespace tegula {

using enum CollectiveKind;

namespace {
// In the round of a distance, which halves from one to the next, those are served for which this
// holds, by whom that distance is before them.
bool is_served(int64_t number, int64_t distance) { return number % (2 * distance) == distance; }
}  // namespace

void mst::scatter_in_place(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const FromRoot ranks{job.n_ranks, job.root};
  const int64_t number = ranks.number(rank);
  const int64_t distance = int64_t{1} << (rounds_of_tree(job.n_ranks) - 1 - round);
  if (!is_served(number, distance)) return;
  const int64_t giver = number - distance, at = job.begin(number);
  const int64_t last = number + held(number, job.n_ranks);
  out.take(ranks.rank(giver), {giver == 0 ? Space::kOperand : Space::kResult, at},
           {Space::kResult, at}, job.begin(last) - at);
}

int64_t mst::held(int64_t number, int64_t n_ranks) {
  return number == 0 ? n_ranks : std::min(number & -number, n_ranks - number);
}

namespace {

int64_t rounds(const CollectiveJob& job) {
  return std::max<int64_t>(1, rounds_of_tree(job.n_ranks));
}

// Parts that a rank holds on the way to and from others: the parts of those after it, in their
// order from the root on, in the workspace.
struct Held {
  const CollectiveJob& job;
  FromRoot ranks;
  explicit Held(const CollectiveJob& j) : job(j), ranks{j.n_ranks, j.root} {}
  int64_t size(int64_t number) const { return job.size(ranks.rank(number)); }
  // Where the part of `number` lies at the rank with number `holder`.
  int64_t at(int64_t holder, int64_t number) const {
    int64_t n = 0;
    for (int64_t i = holder; i < number; ++i) n += size(i);
    return n;
  }
  int64_t in_whole(int64_t number) const { return job.begin(ranks.rank(number)); }
};

// The whole from `held` at the root into the results of all others.
void broadcast(const CollectiveJob& job, int64_t rank, int64_t round, Space held, Round& out) {
  const FromRoot ranks{job.n_ranks, job.root};
  const int64_t number = ranks.number(rank);
  const int64_t distance = int64_t{1} << (rounds(job) - 1 - round);
  if (!is_served(number, distance)) return;
  const int64_t giver = number - distance;
  out.take(ranks.rank(giver), {giver == 0 ? held : Space::kResult, 0}, {Space::kResult, 0}, job.n);
}

void scatter(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const Held h(job);
  const int64_t number = h.ranks.number(rank);
  const SpacePlace result{Space::kResult, 0};
  if (number == 0) {
    if (round == 0) out.take(rank, {Space::kOperand, h.in_whole(0)}, result, h.size(0));
    return;
  }
  const int64_t distance = int64_t{1} << (rounds(job) - 1 - round);
  if (!is_served(number, distance)) return;
  const int64_t giver = number - distance;
  for (int64_t i = number; i < std::min(number + distance, job.n_ranks); ++i)
    out.take(h.ranks.rank(giver),
             giver == 0 ? SpacePlace{Space::kOperand, h.in_whole(i)}
                        : SpacePlace{Space::kWorkspace, h.at(giver, i)},
             i == number ? result : SpacePlace{Space::kWorkspace, h.at(number, i)}, h.size(i));
}

void gather(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const Held h(job);
  const int64_t number = h.ranks.number(rank), distance = int64_t{1} << round;
  if (number == 0 && round == 0)
    out.take(rank, {Space::kOperand, 0}, {Space::kResult, h.in_whole(0)}, h.size(0));
  const int64_t giver = number + distance;
  if (number % (2 * distance) != 0 || giver >= job.n_ranks) return;
  for (int64_t i = giver; i < std::min(giver + distance, job.n_ranks); ++i)
    out.take(
        h.ranks.rank(giver),
        i == giver ? SpacePlace{Space::kOperand, 0} : SpacePlace{Space::kWorkspace, h.at(giver, i)},
        number == 0 ? SpacePlace{Space::kResult, h.in_whole(i)}
                    : SpacePlace{Space::kWorkspace, h.at(number, i)},
        h.size(i));
}

// Rank `number`: how often it has added in the rounds before.
int64_t n_added(const CollectiveJob& job, int64_t number, int64_t round) {
  int64_t n = 0;
  for (int64_t k = 0; k < round; ++k) {
    const int64_t distance = int64_t{1} << k;
    n += number % (2 * distance) == 0 && number + distance < job.n_ranks;
  }
  return n;
}
// Where its sum so far lies. In the workspace stand what came and the sum of it, by turns.
SpacePlace partial(const CollectiveJob& job, int64_t number, int64_t round) {
  const int64_t n = n_added(job, number, round);
  return n == 0 ? SpacePlace{Space::kOperand, 0}
                : SpacePlace{Space::kWorkspace, (2 * n - 1) * job.n};
}

void reduce(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const FromRoot ranks{job.n_ranks, job.root};
  const int64_t number = ranks.number(rank), distance = int64_t{1} << round;
  const int64_t giver = number + distance;
  if (number % (2 * distance) != 0 || giver >= job.n_ranks) return;
  const int64_t n = n_added(job, number, round);
  const SpacePlace came{Space::kWorkspace, 2 * n * job.n};
  out.take(ranks.rank(giver), partial(job, giver, round), came, job.n);
  const bool is_last = number == 0 && round == rounds(job) - 1;
  out.add(partial(job, number, round), came,
          is_last ? SpacePlace{Space::kResult, 0} : partial(job, number, round + 1), job.n);
}

int64_t n_rounds(const CollectiveJob& job) {
  const bool is_two = job.kind == kAllGather || job.kind == kAllReduce;
  return job.n_ranks == 1 ? 1 : (is_two ? 2 : 1) * rounds(job);
}

void list(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  if (job.n_ranks == 1) return direct_algorithm.list(job, rank, round, out);
  const int64_t first = rounds(job);
  switch (job.kind) {
    case kBroadcast:
      if (rank == job.root && round == 0)
        out.take(rank, {Space::kOperand, 0}, {Space::kResult, 0}, job.n);
      return broadcast(job, rank, round, Space::kOperand, out);
    case kScatter:
      return scatter(job, rank, round, out);
    case kGather:
      return gather(job, rank, round, out);
    case kAllGather:
      return round < first ? gather(job, rank, round, out)
                           : broadcast(job, rank, round - first, Space::kResult, out);
    case kReduce:
      return reduce(job, rank, round, out);
    case kAllReduce:
      return round < first ? reduce(job, rank, round, out)
                           : broadcast(job, rank, round - first, Space::kResult, out);
    default:
      return;
  }
}

int64_t workspace(const CollectiveJob& job, int64_t rank) {
  const int64_t number = FromRoot{job.n_ranks, job.root}.number(rank);
  if (job.kind == kReduce || job.kind == kAllReduce)
    return 2 * n_added(job, number, rounds(job)) * job.n;
  const bool holds = job.kind == kScatter || job.kind == kGather || job.kind == kAllGather;
  return holds && number != 0 ? Held(job).at(number, job.n_ranks) : 0;
}

AlgorithmPrice price(const CollectiveJob& job) {
  const auto log = static_cast<double>(rounds_of_tree(job.n_ranks));
  const auto n = static_cast<double>(job.n_ranks);
  switch (job.kind) {
    case kBroadcast:
      return {log, log, 0};
    case kReduce:
      return {log, log, log};
    case kAllReduce:
      return {2 * log, 2 * log, log};
    case kAllGather:
      return {2 * log, log + (n - 1) / n, 0};
    default:
      return {log, (n - 1) / n, 0};
  }
}

}  // namespace

const AlgorithmDef mst_algorithm = {
    .name = "mst",
    .doc = "a minimum spanning tree: few messages, for short vectors",
    .does = [](CollectiveKind k) { return k != kReduceScatter && k != kAllToAll; },
    .adds_on_the_way = true,
    .n_rounds = n_rounds,
    .list = list,
    .workspace = workspace,
    .price = price,
};

}  // namespace tegula
