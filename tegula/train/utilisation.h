// Which share of a machine's peak a training step reaches.
//
//   MFU = model FLOPs / (seconds · peak)
//   HFU = (model FLOPs + FLOPs that are computed again) / (seconds · peak)
//
// Model FLOPs are those of the mathematics, by the planner's convention (products, and attention
// over all keys, three times the forward part), so they do not depend on how a step is compiled.
// The work that --memory, --checkpoint and --blockwise compute again raises HFU alone.
//
// [Chowdhery et al. 2022, appendix B]
#pragma once

#include <cstdint>

#include "tegula/base/result.h"

namespace tegula {

struct TrainConfig;
struct RankRange;
struct Target;

struct Utilisation {
  double model_flops = 0, recomputed_flops = 0;  // of a step, all ranks
  double peak_flops_per_s = 0;                   // 0: not known

  double mfu(double step_ms) const { return share(model_flops, step_ms); }
  double hfu(double step_ms) const { return share(model_flops + recomputed_flops, step_ms); }

 private:
  double share(double flops, double step_ms) const {
    const double possible = peak_flops_per_s * step_ms / 1e3;
    return possible > 0 ? flops / possible : 0;
  }
};

// How many of a step's planned FLOPs on these ranks are there only because memory is saved:
// `planned` less what the step takes when nothing is computed again, which is planned for it. 0
// where nothing was asked for.
Result<int64_t> recomputed_flops(const TrainConfig& config, const Target& target, int64_t planned,
                                 RankRange own);

}  // namespace tegula
