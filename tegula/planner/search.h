// Search: every layout of a job that divides and that the pins allow, priced; the best of those
// that fit, and why the nearest others lost.
//
// The space is enumerated whole: factors dp·tp·pp·cp of the devices, cp by ring or Ulysses, ep,
// ZeRO stage, sp, schedule, interleaving up to kMostInterleave, slices of tokens by powers of two
// up to kMostSlices, micro-batches of up to kMostMicrobatch sequences, recomputation. Layouts that
// cut a layer alike share its price, so that a layout costs about a microsecond. Ties go to less
// memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/planner/reserve.h"
#include "tegula/planner/step_price.h"

namespace tegula::planner {

inline constexpr int64_t kMostInterleave = 8, kMostSlices = 16, kMostMicrobatch = 256;
inline constexpr size_t kBestLayouts = 5;
inline constexpr double kEqualShare = 0.01;  // of a step: no plan is better than that

struct Rejected {
  StepPrice price;
  Fit fit = Fit::kFits;
  std::string why;
};

struct SearchResult {
  // At most kBestLayouts of different meshes, fastest first; of those that are equal within
  // kEqualShare the simplest ones.
  std::vector<StepPrice> best;
  int64_t n_equal = 0;  // of them
  double fastest_s = 0;
  Fit fit = Fit::kFits;  // of them: layouts that fit, or, where none does, that may not
  std::vector<Rejected> rejected;
  int64_t n_layouts = 0, n_fit = 0, n_may_fit = 0;  // n_may_fit: of the others
  std::optional<StepPrice> smallest;                // least memory of all
  std::optional<StepPrice> with_twice_memory;       // the fastest that twice the memory would hold
};

// Errors: no layout divides; then the first reason, of the pinned layout where pins say enough.
Result<SearchResult> search_layouts(const ModelSpec& model, const ParamCount& params,
                                    const ClusterSpec& cluster, const Job& job, const Pins& pins);

}  // namespace tegula::planner
