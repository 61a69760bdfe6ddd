// PlannedProgram: the plans of a program's parts, the schedule, and where flows lie, for one rank
// that runs all stages in turns.
//
// Parts share one arena, since they run in turns. A flow of a micro-batch is memory of its own from
// the run that makes it to the last that reads it: the schedule decides how many live at once.
#pragma once

#include <vector>

#include "tegula/base/memory.h"
#include "tegula/plan/plan.h"
#include "tegula/plan/schedule_loop.h"

namespace tegula {

struct PlannedProgram {
  Program program;
  std::vector<std::shared_ptr<const Plan>> plans;  // of each part
  Schedule schedule;                               // with the update behind it
  std::vector<PartRun> order;                      // in which one rank runs them
  // Per flow and micro-batch; sums of gradients are state and have none.
  std::vector<std::vector<int64_t>> offsets;
  int64_t flow_bytes = 0;              // all of it, planned exactly
  int64_t flow_lower_bound_bytes = 0;  // largest sum of live flows

  bool is_state(size_t flow) const { return offsets[flow].empty(); }
  // Whether the schedule runs each part. One that only runs forward leaves the others out.
  std::vector<uint8_t> parts_that_run() const;
  int64_t arena_bytes() const;  // the largest part's
  int64_t state_bytes() const;  // weights, optimizer state, sums of gradients
  int64_t peak_bytes() const { return arena_bytes() + state_bytes() + flow_bytes; }
  int64_t flops() const;  // of a step, all micro-batches
};

// `schedule`: without the update (make_schedule). Values that no run of it reads, as backward
// parts' where it only runs forward, live until their maker ends. Errors: what check_schedule
// finds; stages, micro-batches or weight gradients that the program has otherwise; slices, since
// parts are functions of whole micro-batches; no order for one rank that sums gradients as the step
// does.
Result<PlannedProgram> plan_program(Program program, std::vector<std::shared_ptr<const Plan>> plans,
                                    const Schedule& schedule);

}  // namespace tegula
