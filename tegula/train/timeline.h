// What a training step's time goes to, op after op, as one self-contained HTML page (inline SVG, no
// script): `tegula train --timeline FILE.html`.
//
// One row a queue: products and attention, other kernels, copies, what the host does for a device,
// and what is left of the step. Ops run one after another, so their bars stand end to end in the
// order of the plan, each as long as the mean of the steps that were timed: on a device by events
// around its launches, one by one, on the CPU by the clock. What is left is the median step less
// all bars; on a device that step is a replayed graph, and what is left is gaps between its
// kernels, inputs that cross the bus and the host's part.
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
  double begin_ms = 0, end_ms = 0;
};

// Bars of a plan's steps, in order, from their mean seconds. Steps that took none are left out.
std::vector<TimelineEvent> timeline_of(const Plan& plan, std::span<const StepStats> stats,
                                       int64_t timed_steps);

// The page. `step_ms` is the whole step's time; 0: unknown, nothing is said of what is left.
std::string timeline_html(const std::vector<TimelineEvent>& events, double step_ms,
                          std::string_view title);

// Steps of a run that must be done for one of them to be timed: the first two are watched.
inline constexpr int64_t kLeastTimelineSteps = 3;
// The page of a run that is done. Error: no step was timed.
Result<std::string> timeline_page(const Trainer& trainer, const TrainSummary& summary);

}  // namespace tegula
