// Reserve: what a step takes of a device's memory beyond the bytes that are allocated at its peak.
//
//   low  = .96·A + context,  high = 1.04·A·f + context + g·buffers
// A: allocated bytes, which the planner misses by up to 4 % (95th percentile of the seen half of
// bench/results/layouts). f: what an allocator loses in gaps while memory is short, so that it has
// given back what is wholly free: nothing at best; at most 1.12 times for PyTorch's (an executed
// step at 92 % of an H200 had 1.08), 1.2 where parameters are gathered and freed, 1.05 for an
// arena. Context: of a GPU's driver and libraries, .5 to .9 GB. Buffers: of NCCL, up to .5 GB for
// each of the g kinds of groups (dp·cp, tp, cp, pp, ep) that a rank is in. A layout fits where
// `high` is within the memory that programs see, and does not where `low` is not.
#pragma once

#include "tegula/planner/layout.h"

namespace tegula::planner {

enum class Fit : uint8_t { kFits, kMayNotFit, kDoesNotFit };
std::string_view fit_name(Fit fit);  // "may not fit"

// Bytes that programs see of a device's memory; of a device without that number the data sheet's.
double visible_bytes(const Accelerator& device);

struct Reserve {
  double low = 0, high = 0;
  Fit fit = Fit::kFits;
};
Reserve reserve_of(const ClusterSpec& cluster, const Job& job, const Layout& layout,
                   double allocated);
// The most that may be allocated, so that a layout is `fit` or better.
double usable_bytes(const ClusterSpec& cluster, const Job& job, const Layout& layout,
                    Fit fit = Fit::kFits);
// "needs 71.2 GB, with what is reserved 68.9 to 81.0 GB of 85.5: fits".
std::string reserve_text(const ClusterSpec& cluster, const Job& job, const Layout& layout,
                         double allocated);

}  // namespace tegula::planner
