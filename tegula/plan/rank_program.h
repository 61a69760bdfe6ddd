// The programs of a pipeline's ranks: each runs its own list of a schedule and exchanges flows with
// the others.
//
// All that a rank needs is planned by places in its own list, never by time, so that the memory
// planned is the memory taken, however fast others are:
//   a flow that comes is expected before the run ahead of its first reader, and lies there from
//   then on to its last reader;
//   a flow that goes lies there until the rank knows, by something that it received itself, that
//   the other one has read it, or to the end of the step. So nobody waits for a message to be
//   taken but at the step's end, and no bound on what is under way can make a deadlock.
// Behind the update, state that another rank holds too (a tied table, the loss's scale) goes there
// from the rank that updates it.
#pragma once

#include "tegula/ir/micro_groups.h"
#include "tegula/plan/memory.h"
#include "tegula/plan/program.h"

namespace tegula {

// The numbers that messages from one rank to another have: the first half of those of their
// errands from the lower to the higher one, the others back. A number serves again once the
// message before it is reclaimed.
inline constexpr int kMessageNumbers = 2048;

// A stage's gradients are summed where its update is. Of a table that the first and the last stage
// read, the last one's sum goes there, and so does that of a second rank that has the same stage
// (of two pipelines over the same ranks): the one rank has the first half of the micro-batches, the
// other one the second half.
//
// One for each list of the schedule (without the update, make_schedule), whose micro-batches are
// summed in these groups; `joins`: plans of join_sums for the parts that sum, if there are several
// groups. Errors: those of
// plan_program; a stage on more than two ranks, or whose micro-batches are no halves; more than
// kMessageNumbers messages under way between two ranks.
Result<std::vector<PlannedProgram>> plan_ranks(
    const Program& program, const std::vector<std::shared_ptr<const Plan>>& plans,
    const std::vector<std::shared_ptr<const Plan>>& joins, const MicroGroups& groups,
    const Schedule& schedule);

// Numbers the micro-batches of two pipelines over the same ranks anew: the first one gets the first
// half and the other the second, so that each rank's sum is a subtree of a step's. Error: no
// halves.
Status share_halves(Schedule& schedule);
bool has_halves(const Schedule& schedule);

// Shared with plan_program.
Status check_fits(const Schedule& schedule, const Program& program);
Layout place_flows(const std::vector<Lifetime>& lives);

}  // namespace tegula
