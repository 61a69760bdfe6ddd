// Interleaved 1F1B (Narayanan et al. 2021, section 2.2.2): a rank holds v stages, p apart, so that
// a micro-batch comes round v times. Of the time that computing takes, (p − 1) / (v·m) is waited,
// for v times the messages. Micro-batches go in groups of p, or a few more so that all groups are
// alike: a group goes through a rank's first stage, then through its second. Smaller groups would
// have to wait for themselves.

#include "tegula/base/algorithm.h"
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {

struct Turn {
  int chunk, micro_batch;
};

// The largest group: as many groups as have p micro-batches each, alike but for one more in some.
int largest_group(int n_ranks, int n_micro_batches) {
  const int groups = std::max(1, n_micro_batches / n_ranks);
  return (n_micro_batches + groups - 1) / groups;
}

// In which order a rank runs its forward parts; backward parts are alike from the last chunk on.
std::vector<Turn> turns(int n_ranks, int n_chunks, int n_micro_batches) {
  const int groups = std::max(1, n_micro_batches / n_ranks);
  std::vector<Turn> out;
  for (int group = 0, first = 0; group < groups; ++group) {
    const int n = (n_micro_batches - first + groups - group - 1) / (groups - group);
    for (int chunk = 0; chunk < n_chunks; ++chunk)
      for (int m = first; m < first + n; ++m) out.push_back({chunk, m});
    first += n;
  }
  return out;
}

Result<RankLists> make(const ScheduleShape& shape) {
  const int p = shape.n_ranks, v = shape.n_stages / p;
  const int group = largest_group(p, shape.n_micro_batches);
  const std::vector<Turn> order = turns(p, v, shape.n_micro_batches);
  RankLists ranks(static_cast<size_t>(p));
  for (int r = 0; r < p; ++r) {
    auto& list = ranks[static_cast<size_t>(r)];
    const auto forward = [&](size_t i) {
      list.push_back({PartKind::kForward, order[i].chunk * p + r, order[i].micro_batch});
    };
    // Those on their way down and up again before the first gradient comes, and v − 1 groups.
    const size_t ahead = v == 1 ? static_cast<size_t>(p - 1 - r)
                                : static_cast<size_t>(2 * (p - 1 - r) + (v - 1) * group);
    size_t next = 0;
    while (next < std::min(ahead, order.size())) forward(next++);
    for (const Turn& t : order) {
      if (next < order.size()) forward(next++);
      list.push_back({PartKind::kBackward, (v - 1 - t.chunk) * p + r, t.micro_batch});
    }
  }
  return ranks;
}

}  // namespace

extern constinit const ScheduleDef interleaved_schedule = {
    .name = "interleaved",
    .doc = "1F1B with several stages on each rank (Megatron-LM)",
    .stages_per_rank = 2,
    .takes_any_stages_per_rank = true,
    .make = make};

}  // namespace tegula
