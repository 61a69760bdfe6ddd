// GPipe (Huang et al. 2019, section 2.3): all forward, then all backward. A rank keeps the
// activations of every micro-batch; of the time, (p − 1) / (m + p − 1) is spent waiting.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  return each_rank(shape, [&](int r) {
    std::vector<Instr> list;
    for (const PartKind kind : {PartKind::kForward, PartKind::kBackward})
      for (int m = 0; m < shape.n_micro_batches; ++m) list.push_back({kind, r, m});
    return list;
  });
}
}  // namespace

extern constinit const ScheduleDef gpipe_schedule = {
    .name = "gpipe", .doc = "all forward, then all backward (GPipe)", .make = make};

}  // namespace tegula
