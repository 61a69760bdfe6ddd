// A ring, or a chain: each rank takes from the one before it, part by part, so that all links carry
// something all the time. For long vectors. [Chan et al. 2007, section 4.2; Thakur et al. 2005]
#include <algorithm>

#include "tegula/kernels/cpu/common/algorithms/all.h"

namespace tegula {

namespace {

using enum CollectiveKind;

struct Ring {
  int64_t n;
  int64_t before(int64_t rank, int64_t by = 1) const { return (rank - by % n + n) % n; }
};

int64_t n_segments(const CollectiveJob& job) {
  return std::max<int64_t>(1, (job.n + job.segment - 1) / job.segment);
}

// Segment s of the whole.
std::pair<int64_t, int64_t> segment(const CollectiveJob& job, int64_t s) {
  const int64_t at = s * job.segment;
  return {at, std::min(job.segment, job.n - at)};
}

void broadcast(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const FromRoot ranks{job.n_ranks, job.root};
  const int64_t number = ranks.number(rank);
  if (number == 0) {
    if (round == 0) out.take(rank, {Space::kOperand, 0}, {Space::kResult, 0}, job.n);
    return;
  }
  const int64_t s = round - (number - 1);
  if (s < 0 || s >= n_segments(job)) return;
  const auto [at, n] = segment(job, s);
  out.take(ranks.rank(number - 1), {number == 1 ? Space::kOperand : Space::kResult, at},
           {Space::kResult, at}, n);
}

// Room for what came and for its sum, each as long as the vector.
void reduce(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  const FromRoot ranks{job.n_ranks, job.root};
  const int64_t number = ranks.number(rank), s = round - (job.n_ranks - 2 - number);
  if (number == job.n_ranks - 1 || s < 0 || s >= n_segments(job)) return;
  const auto [at, n] = segment(job, s);
  const bool is_first = number == job.n_ranks - 2;
  const SpacePlace came{Space::kWorkspace, at};
  out.take(ranks.rank(number + 1),
           is_first ? SpacePlace{Space::kOperand, at} : SpacePlace{Space::kWorkspace, job.n + at},
           came, n);
  out.add({Space::kOperand, at}, came,
          number == 0 ? SpacePlace{Space::kResult, at} : SpacePlace{Space::kWorkspace, job.n + at},
          n);
}

// `first`: where a rank's own part lies before the first round.
void all_gather(const CollectiveJob& job, int64_t rank, int64_t round, bool is_in_result,
                Round& out) {
  const Ring ring{job.n_ranks};
  if (round == 0 && !is_in_result)
    out.take(rank, {Space::kOperand, 0}, {Space::kResult, job.begin(rank)}, job.size(rank));
  const int64_t part = ring.before(rank, round + 1);
  const SpacePlace to{Space::kResult, job.begin(part)};
  out.take(ring.before(rank), round == 0 && !is_in_result ? SpacePlace{Space::kOperand, 0} : to, to,
           job.size(part));
}

// Where what came in a round lies, and its sum behind it.
int64_t came_at(const CollectiveJob& job, int64_t rank, int64_t round) {
  int64_t at = 0;
  for (int64_t k = 0; k < round; ++k) at += 2 * job.size(Ring{job.n_ranks}.before(rank, 2 + k));
  return at;
}

void reduce_scatter(const CollectiveJob& job, int64_t rank, int64_t round, SpacePlace result,
                    Round& out) {
  const Ring ring{job.n_ranks};
  const int64_t giver = ring.before(rank), part = ring.before(rank, 2 + round);
  const int64_t n = job.size(part);
  const SpacePlace own{Space::kOperand, job.begin(part)};
  const SpacePlace came{Space::kWorkspace, came_at(job, rank, round)};
  out.take(giver,
           round == 0 ? own : SpacePlace{Space::kWorkspace, came_at(job, giver, round - 1) + n},
           came, n);
  out.add(came, own, round == job.n_ranks - 2 ? result : SpacePlace{Space::kWorkspace, came.at + n},
          n);
}

int64_t n_rounds(const CollectiveJob& job) {
  const int64_t steps = job.n_ranks - 1;
  if (steps == 0) return 1;
  switch (job.kind) {
    case kBroadcast:
    case kReduce:
      return steps + n_segments(job) - 1;
    case kAllReduce:
      return 2 * steps;
    default:
      return steps;
  }
}

void list(const CollectiveJob& job, int64_t rank, int64_t round, Round& out) {
  if (job.n_ranks == 1) return direct_algorithm.list(job, rank, round, out);
  const int64_t steps = job.n_ranks - 1;
  switch (job.kind) {
    case kBroadcast:
      return broadcast(job, rank, round, out);
    case kReduce:
      return reduce(job, rank, round, out);
    case kAllGather:
      return all_gather(job, rank, round, false, out);
    case kReduceScatter:
      return reduce_scatter(job, rank, round, {Space::kResult, 0}, out);
    case kAllReduce:
      if (round < steps)
        return reduce_scatter(job, rank, round, {Space::kResult, job.begin(rank)}, out);
      return all_gather(job, rank, round - steps, true, out);
    case kAllToAll:
      for (int64_t by = round == 0 ? 0 : round + 1; by <= round + 1; ++by) {
        const int64_t giver = Ring{job.n_ranks}.before(rank, by);
        out.take(giver, {Space::kOperand, job.in_operand(giver, rank)},
                 {Space::kResult, job.in_result(giver, rank)}, job.size(giver, rank));
      }
      return;
    default:
      return;
  }
}

int64_t workspace(const CollectiveJob& job, int64_t rank) {
  if (job.n_ranks == 1) return 0;
  if (job.kind == kReduce) return 2 * job.n;
  const bool adds = job.kind == kReduceScatter || job.kind == kAllReduce;
  return adds ? came_at(job, rank, job.n_ranks - 1) : 0;
}

AlgorithmPrice price(const CollectiveJob& job) {
  const auto steps = static_cast<double>(job.n_ranks - 1), share = steps / (steps + 1);
  if (steps == 0) return {};
  const auto in_chain = static_cast<double>(n_rounds(job));
  const double longest =
      job.n > 0 ? static_cast<double>(std::min(job.segment, job.n)) / static_cast<double>(job.n)
                : 0;
  // The last segment may be shorter, and then the last rounds are.
  const double chain = 1 + (steps - 1) * longest;
  switch (job.kind) {
    case kBroadcast:
      return {in_chain, chain, 0};
    case kReduce:
      return {in_chain, chain, chain};
    case kAllReduce:
      return {2 * steps, 2 * share, share};
    case kReduceScatter:
      return {steps, share, share};
    default:
      return {steps, share, 0};
  }
}

}  // namespace

const AlgorithmDef ring_algorithm = {
    .name = "ring",
    .doc = "a ring or a chain, parts forwarded as they come, for long vectors",
    .does = [](CollectiveKind k) { return k != kScatter && k != kGather; },
    .adds_on_the_way = true,
    .n_rounds = n_rounds,
    .list = list,
    .workspace = workspace,
    .price = price,
};

}  // namespace tegula
