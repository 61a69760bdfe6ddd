// check_schedule: proves that a schedule is one, from its entries alone.
//
// It proves:
//   every part of every micro-batch (and slice) of every stage is there, once;
//   all parts of a micro-batch in a stage are on one rank, where its activations lie;
//   a rank adds a stage's gradients in ascending order of micro-batches;
//   nothing waits for itself: entries before it on its rank, and what it reads,
//     F(s) of F(s − 1); B(s) of F(s) and B(s + 1); W(s) of B(s);
//     F(slice t) of F(t − 1); B(slice t) of B(t + 1),
//     form no cycle, however long parts and messages take, if messages are received while a rank
//     computes (a send never waits for its receiver);
//   what goes together is a forward part and the backward part behind it;
//   weights are read in versions that an update before has made.
//
// Source: the dependencies of Huang et al. 2019, Qi et al. 2023 (B and W), Li et al. 2021 (slices).
#pragma once

#include <vector>

#include "tegula/plan/schedule.h"

namespace tegula {

// Facts that the order alone decides, per rank.
struct ScheduleFacts {
  std::vector<std::vector<int>> stages;  // whose weights it holds, ascending
  // Forward results (of one stage, micro-batch and slice) that lie there at once, until the last
  // backward part has read them.
  std::vector<int> peak_in_flight;
};

// Error: the rule that does not hold, with the rank and the entries; `most_in_flight` (0: no limit)
// exceeded, with the number that would do.
Result<ScheduleFacts> check_schedule(const Schedule& schedule, int most_in_flight = 0);

}  // namespace tegula
