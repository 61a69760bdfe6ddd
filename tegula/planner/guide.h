// The decision guide: from one device to a cluster, question by question, with this case's numbers.
//
//   1. Does the model fit on one device, nothing computed again?        no: 3
//   2. Is the job done by the deadline?   yes: done.   no: data parallelism over the fewest devices
//      that make it so; if the whole cluster does not, 5
//   3. Does it fit with gradient accumulation in micro-batches of one sequence, and recomputation?
//      yes: 2.   no: 4 (swapping stands last: what it would cost is said)
//   4. Inter- or intra-operator parallelism? By what their messages take beside the layer's work on
//      the links within a node and between nodes.
//   5. The search over everything, on the whole cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tegula/planner/answer.h"

namespace tegula::planner {

struct GuideStep {
  int number = 0;  // of the questions above
  std::string question, numbers, verdict;
  bool is_yes = false;
};

struct Guide {
  std::vector<GuideStep> steps;
  std::optional<StepPrice> chosen;  // none: nothing fits
  int64_t n_devices = 0;            // that it takes
};

// The answer must have a cluster. deadline_s: of a run of answer.tokens_total; 0: none is given,
// and then the job is never done soon enough.
Guide guide(const Answer& answer, double deadline_s);

std::string to_text(const Guide& guide);

}  // namespace tegula::planner
