// PlannedProgram: the plans of a program's parts, the schedule, and where flows lie, for one rank
// that runs all stages in turns, or for one rank of a pipeline (plan/rank_program.h).
//
// Parts share one arena, since they run in turns. A flow of a micro-batch is memory of its own from
// the run that makes it to the last that reads it: the schedule decides how many live at once.
#pragma once

#include <vector>

#include "tegula/base/memory.h"
#include "tegula/plan/plan.h"
#include "tegula/plan/schedule_loop.h"

namespace tegula {

// A value that one rank of a pipeline gives to another: a flow of a micro-batch or, behind the
// update, state that both hold.
struct Message {
  int from = 0, to = 0;            // ranks of the pipeline
  int flow = -1, micro_batch = 0;  // flow -1: state
  std::string state;               // its name at the sender, and at the receiver
  std::string state_there;
  bool is_cleared = false;  // state: a part of a sum, zero again behind the step
  int64_t bytes = 0;
  int number = 0;  // of the two ranks' errands (kernels/peers.h)
};
// "forward.0.1 of micro-batch 2"; "wte.weight".
std::string text_of(const Program& program, const Message& message);

// One thing that a rank does. It expects a message before it needs it, so that it can come while
// the rank computes; what it has sent must be taken before its memory is used again.
// Between its runs it adds sums of gradients (ir/micro_groups.h); what it gave away of them is zero
// again in the end.
struct ProgramStep {
  enum class Kind : uint8_t { kRun, kJoin, kExpect, kReceive, kSend, kReclaim, kClear };
  Kind kind = Kind::kRun;
  PartRun run;      // kRun, kJoin: whose sums
  int message = 0;  // kExpect to kClear: index of messages
  int slot = 0;     // kRun, kJoin: the sums that it runs on
};

struct PlannedProgram {
  Program program;
  std::vector<std::shared_ptr<const Plan>> plans;  // of each part
  std::vector<std::shared_ptr<const Plan>> joins;  // of each part that sums, with several slots
  int n_slots = 1;                                 // of sums
  Schedule schedule;                               // with the update behind it
  int rank = -1;                                   // of a pipeline; -1: it has all stages
  std::vector<PartRun> order;                      // in which this rank runs them
  std::vector<ProgramStep> steps;                  // its runs, with messages between them
  std::vector<Message> messages;                   // that it sends or receives
  // Per flow and micro-batch; sums of gradients are state and have none. -1: not on this rank.
  std::vector<std::vector<int64_t>> offsets;
  int64_t flow_bytes = 0;              // all of it, planned exactly
  int64_t flow_lower_bound_bytes = 0;  // largest sum of live flows

  bool is_state(size_t flow) const { return offsets[flow].empty(); }
  // All plans that are run: of parts, and joins.
  std::vector<const Plan*> plans_that_run() const;
  // Whether the schedule runs each part. One that only runs forward leaves the others out.
  std::vector<uint8_t> parts_that_run() const;
  int64_t arena_bytes() const;  // the largest part's
  int64_t state_bytes() const;  // weights, optimizer state, sums of gradients
  int64_t peak_bytes() const { return arena_bytes() + state_bytes() + flow_bytes; }
  int64_t flops() const;  // of a step, all micro-batches
  // The part that a step runs; of kRun and kJoin.
  const Plan& plan_of(const ProgramStep& s) const {
    return *(s.kind == ProgramStep::Kind::kRun ? plans : joins)[static_cast<size_t>(s.run.part)];
  }
  // That the rank of a pipeline gives to others along it.
  int64_t message_bytes(int pipeline_rank) const;
};

// `schedule`: without the update (make_schedule). Values that no run of it reads, as backward
// parts' where it only runs forward, live until their maker ends. Errors: what check_schedule
// finds; stages, micro-batches or weight gradients that the program has otherwise; slices, since
// parts are functions of whole micro-batches; no order for one rank that sums gradients as the step
// does.
Result<PlannedProgram> plan_program(Program program, std::vector<std::shared_ptr<const Plan>> plans,
                                    const Schedule& schedule);

}  // namespace tegula
