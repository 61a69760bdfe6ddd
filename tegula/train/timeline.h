// Shows what a training step's time goes to, op after op, as one self-contained HTML page (inline
// SVG, no script): `tegula train --timeline FILE.html`.
//
// One row a queue: products and attention, other kernels, copies, what the host does for a device,
// and what is left of the step.
//
// On a device whose driver can be traced (Device::begin_trace) a bar is a kernel, copy or fill of
// one replayed step, from when it began to when it ended, and what is left is the gaps between
// them. Elsewhere a bar is an op: ops run one after another, so their bars stand end to end in the
// order of the plan, each as long as the mean of the steps that were timed (on a device by events
// around its launches, one by one, on the CPU by the clock), and what is left is the median step
// less all bars. The page says which, and why.
//
// On several ranks of a mesh each has two rows, of what it computes and of what it exchanges with
// others, waiting included: a bar is an op as the last step ran it, by the machine's steady clock;
// of a pipeline a part, a message, or a collective within a part.
#pragma once

#include <string>
#include <vector>

#include "tegula/train/trainer.h"

namespace tegula {

enum class Queue : uint8_t { kProducts, kKernels, kCopies, kHost };

struct TimelineEvent {
  std::string op, kernel, scope;
  Phase phase = Phase::kForward;
  Queue queue = Queue::kKernels;
  double begin_ms = 0, end_ms = 0, own_ms = 0;  // own: as runtime/trace.h has it
};

struct Timeline {
  std::vector<TimelineEvent> events;  // in the order in which they began
  double step_ms = 0;      // the whole step's time; 0: unknown, nothing is said of what is left
  bool is_placed = false;  // bars stand where the device ran them
  std::string note;        // a sentence on gaps, or on why nothing is known of them; "": none
};

// Bars of a plan's steps, in order, from their mean seconds. Steps that took none are left out.
std::vector<TimelineEvent> timeline_of(const Plan& plan, std::span<const StepStats> stats,
                                       int64_t timed_steps);

// Bars of what a device did. Kernels and fills are the plan's launches in its order, `launches` of
// each step; where they are not as many, they have names of their own and no op.
std::vector<TimelineEvent> placed_events(const Plan& plan, std::span<const int64_t> launches,
                                         std::span<const DeviceSpan> spans);

// A rank's bars as a text, a line each, for whoever draws all ranks.
std::string bars_of_rank(int64_t rank, const Plan& plan, std::span<const StepStats> stats);
// The same of a pipeline's rank: a bar for each part of its list, each message and collective.
std::string bars_of_rank(int64_t rank, const ProgramSession& session);
// The page of all ranks' bars; of a pipeline, below them, its schedule as simulated with the mean
// time of each part. Errors: a text that bars_of_rank did not write; those of simulate.
Result<std::string> ranks_html(std::span<const std::string> bars, int64_t n_ranks,
                               std::string_view title, const PlannedProgram* pipeline = nullptr);

std::string timeline_html(const Timeline& timeline, std::string_view title);

// Steps of a run that must be done for one of them to be timed: the first two are watched.
inline constexpr int64_t kLeastTimelineSteps = 3;
// The page of a run that is done. Error: no step was timed.
Result<std::string> timeline_page(const Trainer& trainer, const TrainSummary& summary);

}  // namespace tegula
