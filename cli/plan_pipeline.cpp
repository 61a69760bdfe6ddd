#include <cstdio>

#include "cli/plan.h"
#include "cli/process.h"
#include "tegula/base/range.h"
#include "tegula/io/json.h"
#include "tegula/plan/simulate.h"
#include "tegula/train/pipeline.h"

namespace tegula::cli {

namespace {

struct PlannedPipeline {
  StepFunctions functions;
  std::vector<std::string> cuts;
  CompiledStages stages;
  std::vector<StepCost> costs;   // of each rank
  std::vector<int> in_messages;  // that a rank gets in a step
  Simulated simulated;           // of the ranks along the pipeline
  bool is_priced = false;
};

Result<PlannedPipeline> planned(const TrainConfig& c, const Target& target) {
  PlannedPipeline p;
  p.functions = TEGULA_TRY(build_step_functions(c));
  p.cuts = TEGULA_TRY(stages_of(c, p.functions, target));
  p.stages = TEGULA_TRY(compile_pipeline(c, p.functions, target, p.cuts));
  for (const std::string& note : p.stages.notes) print_note(note);
  for (const auto& rank : p.stages.ranks) {
    p.costs.push_back(cost_of_stages(*rank));
    int n = 0;
    for (const Message& m : rank->messages) n += m.to == rank->rank;
    p.in_messages.push_back(n);
  }
  const PlannedProgram& first = *p.stages.ranks[0];
  std::vector<double> seconds;
  for (const auto& plan : first.plans) seconds.push_back(plan->seconds());
  p.is_priced = target.bytes_per_s > 0;
  p.simulated = TEGULA_TRY(simulate(first.program, first.schedule, {.seconds = seconds}));
  return p;
}

// The stages of a rank, as the layers that they begin with: "0, 6".
std::string stages_of_rank(const PlannedPipeline& p, const PlannedProgram& program) {
  std::vector<int> own;
  for (const PartRun& r : program.order) {
    const Part& part = program.program.parts[static_cast<size_t>(r.part)];
    if (is_per_micro_batch(part.kind) && !contains(own, part.stage)) own.push_back(part.stage);
  }
  std::sort(own.begin(), own.end());
  std::string text;
  for (int s : own)
    text += cat(text.empty() ? "" : ", ", s, " from ",
                s == 0 ? std::string("the tokens") : p.cuts[static_cast<size_t>(s) - 1]);
  return text;
}

void print_json(const PlannedPipeline& p, const TrainConfig& c) {
  Json::Array ranks, cuts(p.cuts.begin(), p.cuts.end());
  for (size_t r = 0; r < p.costs.size(); ++r) {
    const auto rank = static_cast<int64_t>(r);
    const Simulated::OfRank& of = p.simulated.ranks[static_cast<size_t>(p.stages.at(rank))];
    ranks.push_back(Json::object({{"stages", stages_of_rank(p, *p.stages.ranks[r])},
                                  {"flops", p.costs[r].flops},
                                  {"sent_bytes", p.stages.sent_bytes(rank)},
                                  {"messages", p.in_messages[r]},
                                  {"flow_bytes", p.stages.ranks[r]->flow_bytes},
                                  {"peak_bytes", p.costs[r].peak_bytes()},
                                  {"busy_s", of.busy_s},
                                  {"waits_s", of.waits_s}}));
  }
  print_line(Json::object({{"params", parameter_count(p.functions.weights)},
                           {"mesh", to_text(c.mesh)},
                           {"mode", c.mode},
                           {"schedule", c.schedule},
                           {"micro_batches", p.stages.ranks[0]->program.n_micro_batches},
                           {"cuts", std::move(cuts)},
                           {"ranks", std::move(ranks)},
                           {"seconds", p.simulated.step_s},
                           {"bubble", p.simulated.bubble}}));
}

void print_text(const PlannedPipeline& p, const TrainConfig& c) {
  std::printf("mesh        %s: %lld ranks, mode %s\n", to_text(c.mesh).c_str(),
              static_cast<long long>(c.mesh.n_ranks()), c.mode.c_str());
  std::printf("pipeline    schedule %s, %d micro-batches on each rank\n", c.schedule.c_str(),
              p.stages.ranks[0]->program.n_micro_batches);
  for (size_t r = 0; r < p.costs.size(); ++r)
    std::printf(
        "rank %-6zu stage %s: %.4g FLOPs, %.1f MiB at its peak (%.1f of flows), sends %.4g bytes "
        "a step, gets %d messages\n",
        r, stages_of_rank(p, *p.stages.ranks[r]).c_str(), static_cast<double>(p.costs[r].flops),
        static_cast<double>(p.costs[r].peak_bytes()) / (1 << 20),
        static_cast<double>(p.stages.ranks[r]->flow_bytes) / (1 << 20),
        static_cast<double>(p.stages.sent_bytes(static_cast<int64_t>(r))), p.in_messages[r]);
  if (p.is_priced)
    std::printf("a step      %.4g ms by what kernels sustain, %.1f %% of it waiting\n",
                1e3 * p.simulated.step_s, 100 * p.simulated.bubble);
}

}  // namespace

Status plan_pipeline(const TrainConfig& config, const Target& target) {
  const PlannedPipeline p = TEGULA_TRY(planned(config, target));
  config.json ? print_json(p, config) : print_text(p, config);
  return {};
}

}  // namespace tegula::cli
