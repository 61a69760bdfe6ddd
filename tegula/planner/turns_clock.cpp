#include "tegula/planner/turns_clock.h"

#include "tegula/base/algorithm.h"
#include "tegula/plan/schedule.h"

namespace tegula::planner {

namespace {

constexpr int kNoNode = -1;

// Which node has made what, as entries come in an order in which nothing waits.
class Made {
 public:
  explicit Made(const Schedule& s)
      : n_stages_(static_cast<size_t>(s.shape.n_stages)),
        n_micro_batches_(static_cast<size_t>(s.shape.n_micro_batches)) {
    nodes_.assign(3 * n_stages_ * n_micro_batches_, kNoNode);
  }
  int& at(PartKind kind, int stage, int micro_batch) {
    const size_t row = kind == PartKind::kForward ? 0 : kind == PartKind::kBackward ? 1 : 2;
    return nodes_[(row * n_stages_ + static_cast<size_t>(stage)) * n_micro_batches_ +
                  static_cast<size_t>(micro_batch)];
  }
  int& of(const Instr& i) { return at(i.kind, i.stage, i.micro_batch); }
  // The runs that an entry reads of others; kNoNode: not made yet.
  std::vector<int> read_by(const Instr& i) {
    if (i.kind == PartKind::kWeightGradient)
      return {at(PartKind::kBackward, i.stage, i.micro_batch)};
    if (i.kind == PartKind::kForward)
      return i.stage == 0 ? std::vector<int>{}
                          : std::vector<int>{at(PartKind::kForward, i.stage - 1, i.micro_batch)};
    std::vector<int> read = {at(PartKind::kForward, i.stage, i.micro_batch)};
    if (static_cast<size_t>(i.stage) + 1 < n_stages_)
      read.push_back(at(PartKind::kBackward, i.stage + 1, i.micro_batch));
    return read;
  }

 private:
  size_t n_stages_, n_micro_batches_;
  std::vector<int> nodes_;
};

}  // namespace

Result<TurnsClock::Graph> TurnsClock::graph_of(Turns turns, int64_t pp, int64_t m) {
  const ScheduleDef* def = TEGULA_TRY(find_schedule(turns_name(turns)));
  const Schedule s = TEGULA_TRY(make_schedule(
      *def,
      {static_cast<int>(pp), static_cast<int>(pp * def->stages_per_rank), static_cast<int>(m), 1}));
  Graph g;
  Made made(s);
  std::vector<size_t> next(s.ranks.size(), 0);
  std::vector<int> last(s.ranks.size(), kNoNode);
  // One node of a rank: an entry, or those that go together.
  const auto follow = [&](size_t rank) {
    const std::vector<Instr>& list = s.ranks[rank];
    size_t end = next[rank];
    while (list[end].with_next) ++end;
    std::vector<int> from;
    for (size_t i = next[rank]; i <= end; ++i)
      for (const int node : made.read_by(list[i])) {
        const bool is_own = list[i].kind == PartKind::kWeightGradient && i > next[rank];
        if (node == kNoNode && !is_own) return false;
        if (node != kNoNode) from.push_back(node);
      }
    const int node = static_cast<int>(g.counts.size());
    uint8_t counts = 0;
    for (size_t i = next[rank]; i <= end; ++i) {
      made.of(list[i]) = node;
      counts += list[i].kind == PartKind::kForward ? 1 : 0;
      if (list[i].kind == PartKind::kBackward) counts += s.weight_gradients_apart ? 4 : 4 + 16;
      counts += list[i].kind == PartKind::kWeightGradient ? 16 : 0;
    }
    if (last[rank] != kNoNode) from.push_back(last[rank]);
    last[rank] = node;
    g.counts.push_back(counts), g.begin.push_back(static_cast<int>(g.from.size()));
    g.from.insert(g.from.end(), from.begin(), from.end());
    next[rank] = end + 1;
    return true;
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (size_t rank = 0; rank < s.ranks.size(); ++rank)
      while (next[rank] < s.ranks[rank].size() && follow(rank)) goes_on = true;
  }
  g.begin.push_back(static_cast<int>(g.from.size()));
  return g;
}

Result<double> TurnsClock::longest(Turns turns, int64_t pp, int64_t m, const Times& t) {
  auto found = graphs_.find({turns, pp, m});
  if (found == graphs_.end()) {
    Graph g = TEGULA_TRY(graph_of(turns, pp, m));
    found = graphs_.emplace(std::tuple{turns, pp, m}, std::move(g)).first;
  }
  const Graph& g = found->second;
  double takes[64];
  for (int c = 0; c < 64; ++c) {
    const int f = c & 3, b = c >> 2 & 3, w = c >> 4;
    takes[c] = (f * t.forward + b * t.backward + w * t.weights) * (f > 0 && b > 0 ? t.together : 1);
  }
  ends_.resize(g.counts.size());
  double most = 0;
  for (size_t i = 0; i < g.counts.size(); ++i) {
    double begin = 0;
    for (int k = g.begin[i]; k < g.begin[i + 1]; ++k)
      begin = std::max(begin, ends_[static_cast<size_t>(g.from[static_cast<size_t>(k)])]);
    ends_[i] = begin + takes[g.counts[i]];
    most = std::max(most, ends_[i]);
  }
  return most;
}

Result<double> TurnsClock::seconds(Turns turns, int64_t pp, int64_t m, const Times& times) {
  if (last_.turns == turns && last_.pp == pp && last_.n_microbatches == m && last_.times == times)
    return last_.seconds;
  last_ = {turns, pp, m, times, TEGULA_TRY(followed(turns, pp, m, times))};
  return last_.seconds;
}

Result<double> TurnsClock::followed(Turns turns, int64_t pp, int64_t m, const Times& times) {
  const int64_t first = kRounds * pp;
  if (m < first + pp) return longest(turns, pp, m, times);
  const int64_t begin = first + (m - first) % pp;
  const double end = TEGULA_TRY(longest(turns, pp, begin, times));
  const double before = TEGULA_TRY(longest(turns, pp, begin - pp, times));
  const int64_t rounds = (m - begin) / pp;
  return end + static_cast<double>(rounds) * (end - before);
}

}  // namespace tegula::planner
