// TeraPipe (Li et al. 2021, section 3.2): a token's layers read only tokens before it, so a
// micro-batch goes through the stages in slices of its tokens. Slice t's forward part reads the
// keys and values of those before it; backward it is the other way round, since their gradients
// gather. All forward, then all backward: with T slices that take equally long,
// (p − 1) / (m·T + p − 1) of the time is spent waiting. A rank keeps what GPipe keeps.
#include "tegula/plan/schedule.h"

namespace tegula {

namespace {
Result<RankLists> make(const ScheduleShape& shape) {
  RankLists ranks(static_cast<size_t>(shape.n_ranks));
  for (int r = 0; r < shape.n_ranks; ++r) {
    auto& list = ranks[static_cast<size_t>(r)];
    for (int m = 0; m < shape.n_micro_batches; ++m)
      for (int t = 0; t < shape.n_slices; ++t) list.push_back({PartKind::kForward, r, m, t});
    for (int m = 0; m < shape.n_micro_batches; ++m)
      for (int t = shape.n_slices; t-- > 0;) list.push_back({PartKind::kBackward, r, m, t});
  }
  return ranks;
}
}  // namespace

extern constinit const ScheduleDef tera_pipe_schedule = {
    .name = "tera_pipe",
    .known_as = "terapipe",
    .doc = "slices of tokens, one behind another (TeraPipe)",
    .takes_slices = true,
    .make = make};

}  // namespace tegula
