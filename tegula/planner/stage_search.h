// Stages of unequal sizes on submeshes of unequal sizes: which layers together on which devices.
// [Zheng et al. 2022 (Alpa), section 5, equations 2 to 4 and theorem 1]
//
//   step = Σ tᵢ + (m − 1)·max tᵢ   over m micro-batches,   tᵢ: a micro-batch on stage i
// Submeshes are parts of a node, 1 × 2^k, or whole nodes, n × all of it; any of them whose devices
// sum to the cluster's cover it. Exact: for every time that the slowest stage may take, the least
// sum by dynamic programming over (stages that follow, first layer, devices left); times from which
// on (m − 1)·t alone is slower are left out.
#pragma once

#include <cmath>
#include <vector>

#include "tegula/planner/step_price.h"

namespace tegula::planner {

struct Submesh {
  int64_t nodes = 1, devices = 1;  // of each node
  int64_t size() const { return nodes * devices; }
  friend bool operator==(const Submesh&, const Submesh&) = default;
};
std::vector<Submesh> submeshes_of(const ClusterSpec& cluster);

// Seconds of a micro-batch: layers [begin, end) on a submesh, with so many stages behind it (which
// is how many micro-batches more it keeps); infinite: it does not fit.
struct StageCosts {
  int64_t n_layers = 0, n_devices = 0, n_micro_batches = 1;
  std::vector<Submesh> submeshes;
  std::vector<double> seconds;  // [begin][end][submesh][stages behind]
  size_t index(int64_t begin, int64_t end, size_t submesh, int64_t behind) const {
    const auto n = static_cast<size_t>(n_layers);
    return ((static_cast<size_t>(begin) * (n + 1) + static_cast<size_t>(end)) * submeshes.size() +
            submesh) *
               n +
           static_cast<size_t>(behind);
  }
  double at(int64_t begin, int64_t end, size_t submesh, int64_t behind) const {
    return seconds[index(begin, end, submesh, behind)];
  }
};
// All infinite.
StageCosts stage_costs(int64_t n_layers, int64_t n_devices, int64_t n_micro_batches,
                       std::vector<Submesh> submeshes);

struct PlacedStage {
  int64_t begin = 0, end = 0;
  Submesh submesh;
  double seconds = 0;
};
struct StagePlan {
  std::vector<PlacedStage> stages;
  double step_s = 0;
};
// Error: no way fits.
Result<StagePlan> search_stages(const StageCosts& costs);

// The costs of a job with micro-batches of `microbatch` sequences: on a submesh tp over up to a
// node's devices and dp over the rest, whichever is faster and fits. The head is in the last
// layer's stage, the embedding in the first's. Errors: more than 128 layers or 256 devices, whose
// table would be too large; sequences that the micro-batch does not divide.
Result<StageCosts> price_stages(StepPricer& pricer, const ModelSpec& model,
                                const ParamCount& params, const ClusterSpec& cluster,
                                const Job& job, int64_t microbatch);

}  // namespace tegula::planner
