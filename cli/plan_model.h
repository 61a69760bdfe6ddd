// The parts of `tegula plan MODEL` beside the planner, each in a source of its name.
#pragma once

#include <string>

#include "tegula/planner/answer.h"
#include "tegula/planner/live_table.h"
#include "tegula/train/config.h"

namespace tegula::cli {

// Plans of a rank's micro-batch for the cluster planner, on a CPU's kernels.

// The configuration of what one rank of tp and cp runs of a layout. Error: no family builds it.
Result<TrainConfig> config_of_rank(const planner::ModelSpec& model, const planner::Job& job,
                                   const planner::Layout& layout);

// Layers by plans of three and four of them, or of as many as have steady layers in between: some
// tenths of a second each, of at most kMostShapes shapes. A ring of more than kMostCp ranks, whose
// plan is as long, is planned as one of kMostCp over as many tokens a rank: what the partial
// results of more blocks take, some 3 %, is not in it.
class LayerPlans : public planner::LivePlans {
 public:
  static constexpr int kMostShapes = 8;
  static constexpr int64_t kMostCp = 4;

  std::optional<planner::LayerLive> of(const planner::ModelSpec& model, const planner::Job& job,
                                       const planner::Layout& layout) override;

 private:
  int n_shapes_ = 0;
};

// tegula plan MODEL --plan-in-full: the memory of the best layouts from the project's own graph.

// For each of the best layouts without a pipeline: the whole step's graph, sharded over tp and cp,
// and planned for one rank, beside what the search counted. Errors: a model that is not built here.
Result<std::string> plan_in_full(const planner::Answer& answer);

// This machine's CPU as a device of the cluster planner: --gpus this-cpu.

inline constexpr std::string_view kThisCpu = "this-cpu";

// Where q.gpus asks for it, adds it to q.machines, measured with so many threads (0: all cores) in
// some seconds: peaks, and the least time of an op; products of few rows and of many, over as many
// bytes of weights as the model has, so that they lie in that level of memory where its weights do.
// Errors: several are asked for; the model's own.
Status add_this_cpu(planner::Question& question, int n_threads);

}  // namespace tegula::cli
