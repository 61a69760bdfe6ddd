// Chimera (Li and Hoefler 2021, section 3.1): two pipelines over the same ranks, one down, one up,
// so that each fills the other's gaps. Rank r holds stages r and p − 1 − r: weights twice, and
// their gradients are summed over both ranks. Even micro-batches go down, odd ones up, each
// pipeline as 1F1B in units of p micro-batches; in slots of F = B no two parts meet. It waits for
// p − 2 slots of all: (p − 2) / (2m + p − 2) of the time with F = B, and with B = 2F and m = p
// (p − 2) / (1.5m + p − 2). The activations kept are those of p/2 + 1 to p micro-batches.

#include "tegula/base/algorithm.h"
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {

Result<RankLists> make(const ScheduleShape& shape) {
  const int p = shape.n_ranks;
  if (p % 2 != 0)
    return invalid_argument(
        cat("schedule chimera pairs each rank with another one: ", p, " ranks cannot be paired"));
  struct Slot {
    int at;
    Instr instr;
  };
  RankLists ranks(static_cast<size_t>(p));
  for (int r = 0; r < p; ++r) {
    std::vector<Slot> slots;
    for (int m = 0; m < shape.n_micro_batches; ++m) {
      const int stage = m % 2 == 0 ? r : p - 1 - r;
      // The unit's number and the place in its pipeline: a unit is 2p slots behind the last one.
      const int begin = 2 * p * (m / p) + 2 * (m % p / 2);
      slots.push_back({begin + stage, {PartKind::kForward, stage, m}});
      slots.push_back({begin + 2 * p - 1 - stage, {PartKind::kBackward, stage, m}});
    }
    std::sort(slots.begin(), slots.end(), [](const Slot& a, const Slot& b) { return a.at < b.at; });
    for (const Slot& s : slots) ranks[static_cast<size_t>(r)].push_back(s.instr);
  }
  return ranks;
}

}  // namespace

extern constinit const ScheduleDef chimera_schedule = {
    .name = "chimera",
    .doc = "two pipelines in opposite directions, weights twice (Chimera)",
    .make = make};

}  // namespace tegula
