// Plans of a rank's micro-batch for the cluster planner, on a CPU's kernels.
#pragma once

#include "tegula/planner/live_table.h"
#include "tegula/train/config.h"

namespace tegula::cli {

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

}  // namespace tegula::cli
