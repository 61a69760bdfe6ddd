#include "tegula/plan/schedule.h"

namespace tegula {

std::string text_of(const Instr& instr) {
  std::string text = cat("stage ", instr.stage, "'s ", name_of(instr.kind));
  if (is_per_micro_batch(instr.kind)) text += cat(" of micro-batch ", instr.micro_batch);
  if (instr.slice > 0) text += cat(", slice ", instr.slice);
  return text;
}

int Schedule::rank_of(int stage, int micro_batch) const {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (const Instr& i : ranks[rank])
      if (i.stage == stage && i.micro_batch == micro_batch) return static_cast<int>(rank);
  return -1;
}

Result<const ScheduleDef*> find_schedule(std::string_view name) {
  std::string names;
  for (const ScheduleDef* s : all_schedules()) {
    if (s->name == name || (!s->known_as.empty() && s->known_as == name)) return s;
    names += cat(names.empty() ? "" : ", ", s->known_as.empty() ? s->name : s->known_as);
  }
  return invalid_argument(cat("there is no schedule \"", name, "\"; there are ", names));
}

RankLists in_turns(const ScheduleShape& shape, InTurns (*of_rank)(int rank, int n_ranks)) {
  return each_rank(shape, [&](int r) {
    const int m = shape.n_micro_batches;
    const InTurns turns = of_rank(r, shape.n_ranks);
    std::vector<Instr> list;
    int forward = 0, weights = 0;
    const auto next_forward = [&] {
      if (forward < m) list.push_back({PartKind::kForward, r, forward++});
    };
    for (int i = 0; i < turns.ahead; ++i) next_forward();
    for (int backward = 0; backward < m; ++backward) {
      if (turns.forward_first) next_forward();
      list.push_back({PartKind::kBackward, r, backward});
      if (turns.put_off >= 0 && backward >= turns.put_off)
        list.push_back({PartKind::kWeightGradient, r, weights++});
      if (!turns.forward_first) next_forward();
    }
    while (turns.put_off >= 0 && weights < m)
      list.push_back({PartKind::kWeightGradient, r, weights++});
    return list;
  });
}

ScheduleShape default_shape(const ScheduleDef& def, int n_stages, int n_micro_batches) {
  return {n_stages / def.stages_per_rank, n_stages, n_micro_batches, 1};
}

Result<Schedule> make_schedule(const ScheduleDef& def, const ScheduleShape& s) {
  if (s.n_ranks < 1 || s.n_stages < 1 || s.n_micro_batches < 1 || s.n_slices < 1)
    return invalid_argument(cat("schedule ", def.name, ": ", s.n_stages, " stages on ", s.n_ranks,
                                " ranks, ", s.n_micro_batches, " micro-batches in ", s.n_slices,
                                " slices: each must be 1 or more"));
  if (def.takes_any_stages_per_rank ? s.n_stages % s.n_ranks != 0
                                    : s.n_stages != s.n_ranks * def.stages_per_rank)
    return invalid_argument(
        cat("schedule ", def.name, " has ", def.takes_any_stages_per_rank ? "equally many" : "",
            def.takes_any_stages_per_rank ? std::string() : cat(def.stages_per_rank),
            def.stages_per_rank == 1 && !def.takes_any_stages_per_rank ? " stage" : " stages",
            " on each rank: ", s.n_stages, " stages do not go on ", s.n_ranks,
            s.n_ranks == 1 ? " rank" : " ranks"));
  if (s.n_slices > 1 && !def.takes_slices)
    return invalid_argument(cat("schedule ", def.name, " does not cut micro-batches into slices: ",
                                s.n_slices, " were asked for; tera_pipe does"));
  Schedule out{s, def.trains, def.weight_gradients_apart, TEGULA_TRY(def.make(s))};
  return out;
}

Schedule with_update(Schedule schedule, const Program& program) {
  if (!schedule.trains) return schedule;
  // Norms of all stages, then the total, then the updates: a rank that waits stands behind them.
  for (const PartKind kind : {PartKind::kFirstNorm, PartKind::kFirstTotal, PartKind::kNorm,
                              PartKind::kTotal, PartKind::kUpdate})
    for (int stage = 0; stage < program.n_stages; ++stage)
      if (const int rank = schedule.rank_of(stage, 0); rank >= 0 && program.find(kind, stage) >= 0)
        schedule.ranks[static_cast<size_t>(rank)].push_back({kind, stage});
  return schedule;
}

}  // namespace tegula
