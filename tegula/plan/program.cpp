#include "tegula/plan/program.h"

#include <map>
#include <set>

#include "tegula/base/algorithm.h"
#include "tegula/ir/micro_groups.h"
#include "tegula/plan/rank_program.h"
#include "tegula/plan/schedule_check.h"

namespace tegula {

std::vector<uint8_t> PlannedProgram::parts_that_run() const {
  std::vector<uint8_t> runs(plans.size());
  for (const PartRun& r : order) runs[r.part] = 1;
  return runs;
}

std::vector<const Plan*> PlannedProgram::plans_that_run() const {
  const std::vector<uint8_t> runs = parts_that_run();
  std::vector<const Plan*> all;
  for (const auto* of : {&plans, &joins})
    for (size_t i = 0; i < of->size(); ++i)
      if (runs[i] && (*of)[i]) all.push_back((*of)[i].get());
  return all;
}

int64_t PlannedProgram::arena_bytes() const {
  int64_t most = 0;
  for (const Plan* plan : plans_that_run()) most = std::max(most, plan->arena_bytes);
  return most;
}

int64_t PlannedProgram::state_bytes() const {
  int64_t bytes = 0;
  std::set<std::string_view> seen;
  for (const Plan* plan : plans_that_run())
    for (const Plan::Port& p : plan->params)
      if (p.role != Role::kInput && seen.insert(p.name).second)
        bytes += p.tensor.type.bytes() * (p.name.starts_with(kNextSum) ? n_slots - 1 : 1);
  return bytes;
}

int64_t PlannedProgram::flops() const {
  int64_t sum = 0;
  for (const ProgramStep& s : steps)
    if (s.kind == ProgramStep::Kind::kRun || s.kind == ProgramStep::Kind::kJoin)
      sum += plan_of(s).flops();
  return sum;
}

int64_t PlannedProgram::message_bytes(int pipeline_rank) const {
  int64_t sum = 0;
  for (const Message& m : messages) sum += m.from == pipeline_rank ? m.bytes : 0;
  return sum;
}

std::string text_of(const Program& program, const Message& message) {
  if (message.flow < 0) return message.state;
  return cat(program.flows[message.flow].name, " of micro-batch ", message.micro_batch);
}

namespace {

struct Recording {
  std::vector<PartRun> order;
  Status run(std::span<const PartRun> together, int) {
    order.insert(order.end(), together.begin(), together.end());
    return {};
  }
};

}  // namespace

Status check_fits(const Schedule& schedule, const Program& program) {
  const ScheduleShape& s = schedule.shape;
  if (s.n_stages != program.n_stages || s.n_micro_batches != program.n_micro_batches)
    return invalid_argument(cat("the schedule is for ", s.n_stages, " stages and ",
                                s.n_micro_batches, " micro-batches, and the step was cut into ",
                                program.n_stages, " stages for ", program.n_micro_batches));
  if (s.n_slices > 1)
    return unsupported(cat("the schedule cuts micro-batches into ", s.n_slices,
                           " slices of tokens, and a part of the step is a function of a whole "
                           "one: it can be simulated, not run"));
  const bool apart = std::any_of(program.parts.begin(), program.parts.end(),
                                 [](const Part& p) { return p.kind == PartKind::kWeightGradient; });
  if (schedule.trains && apart != schedule.weight_gradients_apart)
    return invalid_argument(
        cat("the schedule wants weight gradients ",
            schedule.weight_gradients_apart ? "apart" : "with the backward part",
            ", and the step was split otherwise"));
  return {};
}

namespace {

// Flows of micro-batches whose places are searched for: some hundred milliseconds.
constexpr size_t kMostSearched = 2000;

// The lifetime of each flow and micro-batch, in steps of the order; a flow that is a sum has none.
std::vector<Lifetime> lifetimes(const Program& program, PlannedProgram& out) {
  std::map<std::pair<int, int>, int> at;
  for (size_t i = 0; i < out.order.size(); ++i)
    at[{out.order[i].part, out.order[i].micro_batch}] = static_cast<int>(i);
  const auto is_micro = [&](int part) { return is_per_micro_batch(program.parts[part].kind); };
  std::vector<Lifetime> lives;
  out.offsets.resize(program.flows.size());
  for (size_t f = 0; f < program.flows.size(); ++f) {
    const Flow& flow = program.flows[f];
    const int n = is_micro(flow.from) ? program.n_micro_batches : 1;
    if (flow.is_sum || (n > 1 && !is_micro(flow.to.back()))) continue;
    out.offsets[f].assign(static_cast<size_t>(n), 0);
    for (int m = 0; m < n; ++m) {
      const auto made = at.find({flow.from, m});
      if (made == at.end()) {  // of a part that does not run: no memory
        lives.push_back({0, 0, 0});
        continue;
      }
      Lifetime life{made->second, made->second, flow.type.bytes()};
      for (int to : flow.to)
        if (const auto read = at.find({to, is_micro(to) ? m : 0}); read != at.end())
          life.last = std::max(life.last, read->second);
      lives.push_back(life);
    }
  }
  return lives;
}

}  // namespace

Layout place_flows(const std::vector<Lifetime>& lives) {
  Layout layout = plan_offsets_by_size(lives);
  if (layout.bytes > layout.lower_bound && lives.size() <= kMostSearched)
    if (Layout searched = plan_offsets(lives); searched.bytes < layout.bytes)
      layout = std::move(searched);
  return layout;
}

Result<PlannedProgram> plan_program(Program program, std::vector<std::shared_ptr<const Plan>> plans,
                                    const Schedule& schedule) {
  TEGULA_TRY(check_schedule(schedule));
  TEGULA_TRY(check_fits(schedule, program));
  PlannedProgram out;
  out.schedule = with_update(schedule, program);
  ScheduleLoop loop(program, out.schedule, RunsOn::kOneRank);
  Recording recording;
  TEGULA_TRY(loop.follow(recording));
  out.order = std::move(recording.order);
  for (const PartRun& r : out.order) out.steps.push_back({.run = r});

  const Layout layout = place_flows(lifetimes(program, out));
  size_t next = 0;
  for (auto& of_flow : out.offsets)
    for (int64_t& offset : of_flow) offset = layout.offsets[next++];
  out.flow_bytes = layout.bytes, out.flow_lower_bound_bytes = layout.lower_bound;
  out.program = std::move(program), out.plans = std::move(plans);
  return out;
}

}  // namespace tegula
