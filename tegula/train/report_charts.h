// The charts of a training run's report, each as HTML that fits into a column of any width.
#pragma once

#include <string>
#include <vector>

#include "tegula/train/report.h"

namespace tegula {

// The times of one op and kernel, in one step of training.
struct OpTime {
  std::string op, kernel;
  double ms = 0, least_ms = 0;  // measured; by the roofline, launch by launch
  int64_t launches = 0, flops = 0, bytes = 0;
};

// Training loss, its running mean, and the evaluations.
std::string loss_chart(const TrainHistory& history);
// Learning rate, gradient norm and throughput, step by step.
std::string step_curves(const TrainHistory& history, int64_t tokens_per_step);
// Every op at its arithmetic intensity, under the machine's roof.
std::string roofline_chart(const std::vector<OpTime>& ops, const MachineSpeed& speed);
// A chart of what lives in the arena over the steps of the plan, and what is largest at the peak.
std::string memory_chart(const Plan& plan, const StepCost& cost);

}  // namespace tegula
