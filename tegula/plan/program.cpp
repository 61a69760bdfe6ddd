#include "tegula/plan/program.h"

#include <algorithm>
#include <map>
#include <set>

#include "tegula/plan/memory.h"

namespace tegula {

int64_t PlannedProgram::arena_bytes() const {
  int64_t most = 0;
  for (const auto& plan : plans) most = std::max(most, plan->arena_bytes);
  return most;
}

int64_t PlannedProgram::state_bytes() const {
  int64_t bytes = 0;
  std::set<std::string_view> seen;
  for (const auto& plan : plans)
    for (const Plan::Port& p : plan->params)
      if (p.role != Role::kInput && seen.insert(p.name).second) bytes += p.tensor.type.bytes();
  return bytes;
}

int64_t PlannedProgram::flops() const {
  int64_t sum = 0;
  for (const PartRun& r : order) sum += plans[static_cast<size_t>(r.part)]->flops();
  return sum;
}

namespace {

struct Recording {
  std::vector<PartRun> order;
  Status run(const PartRun& r, int) {
    order.push_back(r);
    return {};
  }
};

}  // namespace

Result<PlannedProgram> plan_program(Program program, std::vector<std::shared_ptr<const Plan>> plans,
                                    const ScheduleDef& def) {
  const bool apart = std::any_of(program.parts.begin(), program.parts.end(),
                                 [](const Part& p) { return p.kind == PartKind::kWeightGradient; });
  if (apart != def.weight_gradients_apart)
    return invalid_argument(cat("schedule ", def.name, " wants weight gradients ",
                                def.weight_gradients_apart ? "apart" : "with the backward part",
                                ", and the step was split otherwise"));
  PlannedProgram out;
  out.schedule = schedule_of(def, program);
  ScheduleLoop loop(program, out.schedule);
  Recording recording;
  TEGULA_TRY(loop.follow(recording));
  out.order = std::move(recording.order);

  std::map<std::pair<int, int>, int> at;
  for (size_t i = 0; i < out.order.size(); ++i)
    at[{out.order[i].part, out.order[i].micro_batch}] = static_cast<int>(i);
  const auto is_micro = [&](int part) {
    return is_per_micro_batch(program.parts[static_cast<size_t>(part)].kind);
  };
  std::vector<Lifetime> lives;
  out.offsets.resize(program.flows.size());
  for (size_t f = 0; f < program.flows.size(); ++f) {
    const Flow& flow = program.flows[f];
    const int n = is_micro(flow.from) ? program.n_micro_batches : 1;
    if (n > 1 && !is_micro(flow.to.back())) continue;  // a sum
    for (int m = 0; m < n; ++m) {
      Lifetime life{at[{flow.from, m}], 0, flow.type.bytes()};
      for (int to : flow.to) life.last = std::max(life.last, at[{to, is_micro(to) ? m : 0}]);
      lives.push_back(life);
      out.offsets[f].push_back(0);
    }
  }
  const Layout layout = plan_offsets(lives);
  size_t next = 0;
  for (auto& of_flow : out.offsets)
    for (int64_t& offset : of_flow) offset = layout.offsets[next++];
  out.flow_bytes = layout.bytes, out.flow_lower_bound_bytes = layout.lower_bound;
  out.program = std::move(program), out.plans = std::move(plans);
  return out;
}

}  // namespace tegula
