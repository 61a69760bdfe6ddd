#include <cstdio>
#include <set>

#include "cli/paths.h"
#include "cli/plan.h"
#include "cli/plan_cut.h"
#include "cli/plan_slices.h"
#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/plan/gantt.h"
#include "tegula/plan/schedule_check.h"

namespace tegula::cli {

namespace {

struct StageRow {
  std::string from;  // the scope that it begins with; "": the first
  int64_t forward_flops = 0, backward_flops = 0, update_flops = 0;  // a step
  int64_t state_bytes = 0, arena_bytes = 0;
  double seconds = 0;
};

struct RankRow {
  std::vector<int> stages;
  int peak_in_flight = 0;
  int64_t state_bytes = 0, arena_bytes = 0;  // of its stages: all of one, the largest of the other
  Simulated::OfRank simulated;
};

// A schedule of a cut step.
struct PlannedStages {
  PlannedProgram whole;               // as one rank runs it
  Program program;                    // its flows those of a slice
  Schedule schedule;                  // with the update
  std::vector<double> part_seconds;   // of a whole micro-batch
  std::vector<double> seconds;        // of each part and slice
  std::vector<int64_t> slice_tokens;  // none: micro-batches are whole
  Simulated simulated;
  std::vector<StageRow> stages;
  std::vector<RankRow> ranks;
};

std::vector<StageRow> stage_rows(const PlannedProgram& p, const std::vector<std::string>& cuts,
                                 std::span<const double> seconds) {
  std::vector<StageRow> rows(static_cast<size_t>(p.program.n_stages));
  std::vector<std::set<std::string>> seen(rows.size());
  std::vector<int64_t> runs(p.plans.size());
  for (const PartRun& r : p.order) ++runs[static_cast<size_t>(r.part)];
  for (size_t i = 0; i < p.plans.size(); ++i) {
    if (runs[i] == 0) continue;
    const Part& part = p.program.parts[i];
    const Plan& plan = *p.plans[i];
    const auto at = static_cast<size_t>(part.stage);
    StageRow& r = rows[at];
    (part.kind == PartKind::kForward ? r.forward_flops
     : is_per_micro_batch(part.kind) ? r.backward_flops
                                     : r.update_flops) += runs[i] * plan.flops();
    r.arena_bytes = std::max(r.arena_bytes, plan.arena_bytes);
    r.seconds += static_cast<double>(runs[i]) * seconds[i];
    for (const Plan::Port& port : plan.params)
      if (port.role != Role::kInput && seen[at].insert(port.name).second)
        r.state_bytes += port.tensor.type.bytes();
  }
  for (size_t s = 1; s < rows.size(); ++s) rows[s].from = cuts[s - 1];
  return rows;
}

Result<std::vector<RankRow>> rank_rows(const Schedule& schedule, const Simulated& simulated,
                                       const std::vector<StageRow>& stages) {
  ScheduleFacts facts = TEGULA_TRY(check_schedule(schedule));
  std::vector<RankRow> rows;
  for (size_t r = 0; r < facts.stages.size(); ++r) {
    RankRow row{std::move(facts.stages[r]), facts.peak_in_flight[r], 0, 0, simulated.ranks[r]};
    for (int s : row.stages) {
      const StageRow& stage = stages[static_cast<size_t>(s)];
      row.state_bytes += stage.state_bytes;
      row.arena_bytes = std::max(row.arena_bytes, stage.arena_bytes);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// The seconds of each part for a whole micro-batch: given, or by its plan's roofline.
Result<std::vector<double>> part_seconds(const PlannedProgram& p, const std::vector<double>& ms) {
  const auto n_stages = static_cast<size_t>(p.program.n_stages);
  if (!ms.empty() && ms.size() != 3 && ms.size() != 3 * n_stages)
    return invalid_argument(cat("--part-ms has ", ms.size(), " times: give three (forward, ",
                                "backward, weight gradients), or three for each of ", n_stages,
                                " stages"));
  std::vector<double> seconds;
  for (size_t i = 0; i < p.plans.size(); ++i) {
    const Part& part = p.program.parts[i];
    if (ms.empty()) {
      seconds.push_back(p.plans[i]->seconds());
      continue;
    }
    const double* t = &ms[ms.size() == 3 ? 0 : 3 * static_cast<size_t>(part.stage)];
    // The first stage has no gradient to send: its backward part is all weight gradients.
    const bool has_weights = p.program.find(PartKind::kWeightGradient, part.stage) >= 0,
               has_backward = p.program.find(PartKind::kBackward, part.stage) >= 0;
    seconds.push_back(1e-3 * (part.kind == PartKind::kForward    ? t[0]
                              : part.kind == PartKind::kBackward ? t[1] + (has_weights ? 0 : t[2])
                              : part.kind == PartKind::kWeightGradient
                                  ? t[2] + (has_backward ? 0 : t[1])
                                  : 0));
  }
  return seconds;
}

// Slices of flows are equal shares of their micro-batch.
Program sliced(Program program, int n_slices) {
  for (Flow& flow : program.flows)
    if (n_slices > 1 && is_per_micro_batch(program.parts[static_cast<size_t>(flow.from)].kind) &&
        is_per_micro_batch(program.parts[static_cast<size_t>(flow.to.back())].kind))
      flow.type = {DType::kU8, {flow.type.bytes() / n_slices}};
  return program;
}

Json rank_json(const RankRow& r) {
  Json j = Json::object({{"begin_s", r.simulated.begin_s},
                         {"end_s", r.simulated.end_s},
                         {"busy_s", r.simulated.busy_s},
                         {"waits_s", r.simulated.waits_s},
                         {"peak_in_flight", r.peak_in_flight},
                         {"flow_bytes", r.simulated.peak_bytes},
                         {"state_bytes", r.state_bytes},
                         {"arena_bytes", r.arena_bytes}});
  j.set("stages", Json::Array(r.stages.begin(), r.stages.end()));
  return j;
}

void print_json(const PlannedStages& p, std::string_view schedule) {
  Json::Array list, parts;
  for (const StageRow& r : p.stages)
    list.push_back(Json::object({{"from", r.from},
                                 {"flops_forward", r.forward_flops},
                                 {"flops_backward", r.backward_flops},
                                 {"flops_update", r.update_flops},
                                 {"state_bytes", r.state_bytes},
                                 {"arena_bytes", r.arena_bytes},
                                 {"seconds", r.seconds}}));
  for (size_t i = 0; i < p.whole.plans.size(); ++i)
    parts.push_back(Json::object({{"part", std::string(name_of(p.program.parts[i].kind))},
                                  {"stage", p.program.parts[i].stage},
                                  {"flops", p.whole.plans[i]->flops()},
                                  {"seconds", p.part_seconds[i]}}));
  Json j = Json::object({{"schedule", std::string(schedule)},
                         {"micro_batches", p.program.n_micro_batches},
                         {"seconds", p.simulated.step_s},
                         {"bubble", p.simulated.bubble},
                         {"flops_per_step", p.whole.flops()},
                         {"one_rank_peak_bytes", p.whole.peak_bytes()}});
  if (!p.slice_tokens.empty())
    j.set("slice_tokens", Json::Array(p.slice_tokens.begin(), p.slice_tokens.end()));
  j.set("stages", Json(std::move(list)));
  j.set("ranks", json_list(p.ranks, rank_json));
  j.set("parts", Json(std::move(parts)));
  print_line(j);
}

void print_text(const PlannedStages& p, const Stages& stages, std::string_view schedule,
                bool is_priced) {
  const double mib = 1 << 20;
  std::printf("stages      %zu on %zu ranks, %d micro-batches", p.stages.size(), p.ranks.size(),
              p.program.n_micro_batches);
  std::printf(", schedule %s\n", std::string(schedule).c_str());
  if (!p.slice_tokens.empty())
    std::printf("slices      %s tokens\n", joined(p.slice_tokens).c_str());
  std::printf("            %5s  %-12s %10s %10s %10s %10s %10s\n", "stage", "from", "forward",
              "backward", "update", "state MiB", "arena MiB");
  for (size_t s = 0; s < p.stages.size(); ++s) {
    const StageRow& r = p.stages[s];
    std::printf("            %5zu  %-12s %10.4g %10.4g %10.4g %10.1f %10.1f\n", s,
                r.from.empty() ? "the tokens" : r.from.c_str(),
                static_cast<double>(r.forward_flops), static_cast<double>(r.backward_flops),
                static_cast<double>(r.update_flops), static_cast<double>(r.state_bytes) / mib,
                static_cast<double>(r.arena_bytes) / mib);
  }
  std::printf("ranks       %5s  %-12s %10s %10s %10s %10s\n", "rank", "stages", "in flight",
              "kept MiB", "computes", "waits");
  for (size_t i = 0; i < p.ranks.size(); ++i) {
    const RankRow& r = p.ranks[i];
    std::printf("            %5zu  %-12s %10d %10.1f", i, joined(r.stages).c_str(),
                r.peak_in_flight, static_cast<double>(r.simulated.peak_bytes) / mib);
    if (is_priced)
      std::printf(" %7.4g ms %7.4g ms", 1e3 * r.simulated.busy_s, 1e3 * r.simulated.waits_s);
    std::printf("\n");
  }
  std::printf("a step      %.4g FLOPs", static_cast<double>(p.whole.flops()));
  if (is_priced)
    std::printf("; %.4g ms by %s, %.1f %% of it waiting", 1e3 * p.simulated.step_s,
                stages.part_ms.empty() ? "its roofline" : "the times given",
                100 * p.simulated.bubble);
  std::printf("\none rank    all stages in turns: %.1f MiB at most\n",
              static_cast<double>(p.whole.peak_bytes()) / mib);
}

// Each part's times, by the plans for a quarter, half and all of the tokens, or as given.
Result<std::vector<PartTime>> part_times(TrainConfig c, const Target& target, const Cut& whole,
                                         const Schedule& schedule, const Stages& stages) {
  const int64_t n = c.row_length();
  if (n < 4) return invalid_argument(cat("--slices: ", n, " tokens are too few to cut"));
  const std::array<int64_t, 3> tokens{n / 4, n / 2, n};
  std::array<std::vector<double>, 3> seconds;
  seconds[2] = TEGULA_TRY(part_seconds(whole.program, stages.part_ms));
  for (size_t i = 0; i < 2; ++i) {
    if (!stages.part_ms.empty()) {
      for (double s : seconds[2])
        seconds[i].push_back(s * static_cast<double>(tokens[i]) / static_cast<double>(n));
      continue;
    }
    c.seqlen = tokens[i];
    const Cut part = TEGULA_TRY(cut_step(c, target, schedule, whole.cuts));
    seconds[i] = TEGULA_TRY(part_seconds(part.program, {}));
    TEGULA_CHECK(seconds[i].size() == seconds[2].size(), "a step has the same parts at any length");
  }
  std::vector<PartTime> times;
  for (size_t part = 0; part < seconds[2].size(); ++part)
    times.push_back(is_per_micro_batch(whole.program.program.parts[part].kind)
                        ? part_time(tokens, {seconds[0][part], seconds[1][part], seconds[2][part]})
                        : PartTime{.fixed = seconds[2][part]});
  return times;
}

Result<PlannedStages> plan_schedule(const TrainConfig& c, const Target& target,
                                    const Stages& stages) {
  const ScheduleDef* def = TEGULA_TRY(find_schedule(c.schedule));
  ScheduleShape shape =
      default_shape(*def, static_cast<int>(stages.n), static_cast<int>(c.accumulate));
  if (stages.ranks > 0) shape.n_ranks = static_cast<int>(stages.ranks);
  if (stages.slices != 1 && !def->takes_slices)
    return invalid_argument(cat("--slices ", stages.slices, ": schedule ", def->name,
                                " does not cut micro-batches into slices; tera_pipe does"));
  const Schedule whole = TEGULA_TRY(make_schedule(*def, shape));
  Cut cut = TEGULA_TRY(cut_step(c, target, whole, {}));
  PlannedStages p;
  p.part_seconds = TEGULA_TRY(part_seconds(cut.program, stages.part_ms));
  p.seconds = p.part_seconds;
  if (stages.slices != 1) {
    const auto times = TEGULA_TRY(part_times(c, target, cut, whole, stages));
    Slices slices = TEGULA_TRY(cut_slices(cut.program.program, times, c.row_length(), shape.n_ranks,
                                          static_cast<int>(stages.slices)));
    shape.n_slices = static_cast<int>(slices.tokens.size());
    p.slice_tokens = std::move(slices.tokens), p.seconds = std::move(slices.seconds);
  }
  p.whole = std::move(cut.program);
  p.program = sliced(p.whole.program, shape.n_slices);
  p.schedule = with_update(TEGULA_TRY(make_schedule(*def, shape)), p.program);
  const Links links{stages.latency_us * 1e-6, stages.link_gb_per_s * 1e9, !stages.blocking_sends};
  p.simulated = TEGULA_TRY(simulate(
      p.program, p.schedule, {.seconds = p.seconds, .links = links, .together = stages.together}));
  p.stages = stage_rows(p.whole, cut.cuts, p.part_seconds);
  p.ranks = TEGULA_TRY(rank_rows(p.schedule, p.simulated, p.stages));
  return p;
}

}  // namespace

Flag add_stages(const Command& cmd, Stages& s) {
  const auto stages =
      cmd.add_option("--stages", s.n, "Cut the step at layers: what each stage costs and waits");
  whole(stages, 1, 1 << 10);
  whole(cmd.add_option("--ranks", s.ranks,
                       "Of the pipeline; 0: one for each stage, or for two "
                       "where the schedule wants it"),
        0, 1 << 10)
      .needs(stages);
  whole(cmd.add_option(
            "--slices", s.slices,
            "Cut each micro-batch's tokens into so many (tera_pipe); 0: as many as are best"),
        0, 1 << 10)
      .needs(stages);
  real(cmd.add_option("--latency-us", s.latency_us, "Of a message between ranks"), 0, 1e9)
      .needs(stages);
  real(cmd.add_option("--link-gb-per-s", s.link_gb_per_s,
                      "Between each two ranks, in each direction; 0: messages take no time"),
       0, 1e9)
      .needs(stages);
  cmd.add_flag("--blocking-sends", s.blocking_sends, "A rank computes nothing while it sends")
      .needs(stages);
  real(cmd.add_option(
           "--together", s.together,
           "Share of the sum of their times that parts take that go together (dual_pipe)"),
       0, 1)
      .needs(stages);
  real(cmd.add_option("--part-ms", s.part_ms,
                      "Times instead of the roofline's: F,B,W of a stage and micro-batch, or of "
                      "each stage"),
       0, 1e12)
      .default_str("")
      .split_at(',')
      .type_name("F,B,W")
      .needs(stages);
  cmd.add_option("--gantt", s.gantt, "Draw the schedule into FILE, an SVG")
      .type_name("FILE")
      .needs(stages);
  return stages;
}

Status plan_stages(const TrainConfig& c, const Target& target, const Stages& stages) {
  if (stages.n > c.model.n_layers)
    return invalid_argument(cat("--stages ", stages.n, ": ", c.model.type, " has ",
                                c.model.n_layers, " layers, and a stage has one at least"));
  const std::string_view schedule = TEGULA_TRY(find_schedule(c.schedule))->name;
  const PlannedStages p = TEGULA_TRY(plan_schedule(c, target, stages));
  if (!stages.gantt.empty()) {
    if (!(p.simulated.step_s > 0))
      return invalid_argument(
          "--gantt needs times: plan for a --target that has a roofline, --measure this machine, "
          "or "
          "give --part-ms");
    const std::string title =
        cat(schedule, ": ", p.stages.size(), " stages on ", p.ranks.size(), " ranks, ",
            p.program.n_micro_batches, printed(" micro-batches; %.1f %%", 100 * p.simulated.bubble),
            " of the time is spent waiting");
    TEGULA_TRY(write_result(stages.gantt, gantt_svg(p.program, p.simulated, title)));
  }
  c.json ? print_json(p, schedule)
         : print_text(p, stages, schedule, target.bytes_per_s > 0 || !stages.part_ms.empty());
  return {};
}

}  // namespace tegula::cli
