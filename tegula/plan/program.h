// PlannedProgram: the plans of a program's parts, the schedule, and where flows lie, for one rank
// that runs all stages in turns.
//
// Parts share one arena, since they run in turns. A flow of a micro-batch is memory of its own from
// the run that makes it to the last that reads it: the schedule decides how many live at once.
#pragma once

#include <memory>
#include <vector>

#include "tegula/plan/plan.h"
#include "tegula/plan/schedule.h"

namespace tegula {

struct PlannedProgram {
  Program program;
  std::vector<std::shared_ptr<const Plan>> plans;  // of each part
  Schedule schedule;
  std::vector<PartRun> order;  // in which one rank runs them
  // Per flow and micro-batch; sums of gradients are state and have none.
  std::vector<std::vector<int64_t>> offsets;
  int64_t flow_bytes = 0;              // all of it, planned exactly
  int64_t flow_lower_bound_bytes = 0;  // largest sum of live flows

  bool is_state(size_t flow) const { return offsets[flow].empty(); }
  int64_t arena_bytes() const;  // the largest part's
  int64_t state_bytes() const;  // weights, optimizer state, sums of gradients
  int64_t peak_bytes() const { return arena_bytes() + state_bytes() + flow_bytes; }
  int64_t flops() const;  // of a step, all micro-batches
};

// Error: the schedule can never go on; it wants weight gradients apart, or not, and the program has
// them otherwise.
Result<PlannedProgram> plan_program(Program program, std::vector<std::shared_ptr<const Plan>> plans,
                                    const ScheduleDef& schedule);

}  // namespace tegula
