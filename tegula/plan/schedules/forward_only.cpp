// Forward parts alone, as inference and evaluation have them: of the time, (p − 1) / (m + p − 1) is
// spent waiting for the first micro-batch to come and the last to go.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  return each_rank(shape, [&](int r) {
    std::vector<Instr> list;
    for (int m = 0; m < shape.n_micro_batches; ++m) list.push_back({PartKind::kForward, r, m});
    return list;
  });
}
}  // namespace

extern constinit const ScheduleDef forward_only_schedule = {
    .name = "forward_only",
    .known_as = "forward",
    .doc = "forward parts alone (inference)",
    .trains = false,
    .make = make};

}  // namespace tegula
