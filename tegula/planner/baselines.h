// Searches of others through the same prices, to be compared with the enumeration: small, but true
// to what they are.
//
//   random   independent draws of every setting
//   mcmc     a walk that changes one setting at a time and goes to what is worse by
//            exp(−β·(cost' − cost)/best), Metropolis's rule           [FlexFlow, Jia et al. 2019,
//            §6]
//   policy   REINFORCE with a moving mean as baseline on a softmax for each setting [ColocRL,
//            Mirhoseini et al. 2017, §3; their network over the graph is left out]
//   bayes    a tree of Parzen estimators: of some draws the one that is likeliest among the best
//            quarter of what was seen, compared with the rest     [Bergstra et al. 2011, §4]
// A layout that does not divide is a trial, too, and costs infinity; one that does not fit costs
// its seconds, ten times and as many times again as it is too large. Draws are Philox's, of the
// seed.
#pragma once

#include <string_view>
#include <vector>

#include "tegula/planner/search.h"

namespace tegula::planner {

enum class Baseline : uint8_t { kRandom, kMcmc, kPolicy, kBayes };
inline constexpr Baseline kBaselines[] = {Baseline::kRandom, Baseline::kMcmc, Baseline::kPolicy,
                                          Baseline::kBayes};
std::string_view baseline_name(Baseline b);

struct BaselineResult {
  bool found = false;  // a layout that fits
  Layout layout;
  double step_s = 0;
  std::vector<double> best_so_far;  // after each trial; infinite: none yet
};

// Pins are not taken: the whole space is searched.
BaselineResult search_by(Baseline how, StepPricer& pricer, const ModelSpec& model,
                         const ClusterSpec& cluster, int64_t n_trials, uint64_t seed);

}  // namespace tegula::planner
