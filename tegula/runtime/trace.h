// RunTrace: what a device did in one run, kernel by kernel, and how much of that time it was idle.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/kernels/device.h"

namespace tegula {

struct RunTrace {
  std::vector<DeviceSpan> spans;  // in the order in which they began
  std::string missing;            // why there are none
};

// Device::begin_trace and end_trace around a run: what cannot be traced is no error of the run, but
// said in `missing`.
void begin_trace(Device& device, RunTrace& trace);
void end_trace(Device& device, RunTrace& trace);

// For each, by how much it ends later than all that began before it: kernels that are launched
// early wait, within their spans, for the one before.
std::vector<double> own_ms(std::span<const DeviceSpan> spans);
// The step of each: kernels and fills are a plan's launches in its order, `launches` of each step;
// copies have none, -1. Empty: there are not as many.
std::vector<int> steps_of(std::span<const DeviceSpan> spans, std::span<const int64_t> launches);
// Time in which at least one of them ran.
double busy_ms(std::span<const DeviceSpan> spans);
// From the first one's beginning to the last one's end.
double length_ms(std::span<const DeviceSpan> spans);
// A sentence on what lies between them, and on a step of `step_ms` that nobody traced; or why
// nothing is known.
std::string gaps_of(const RunTrace& trace, double step_ms);

}  // namespace tegula
