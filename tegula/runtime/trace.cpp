#include "tegula/runtime/trace.h"

#include <cstdio>
#include <numeric>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"

namespace tegula {

void begin_trace(Device& device, RunTrace& trace) {
  trace = {};
  if (const Status begun = device.begin_trace(); !begun.ok()) trace.missing = begun.error().message;
}

void end_trace(Device& device, RunTrace& trace) {
  if (!trace.missing.empty()) return;
  auto spans = device.end_trace();
  if (!spans.ok())
    trace.missing = spans.error().message;
  else if (spans->empty())
    trace.missing = "the device has no record of any kernel";
  else
    trace.spans = std::move(*spans);
}

std::vector<double> own_ms(std::span<const DeviceSpan> spans) {
  std::vector<double> own;
  double until = 0;
  for (const DeviceSpan& s : spans) {
    own.push_back(std::max(0.0, s.end_ms - std::max(s.begin_ms, until)));
    until = std::max(until, s.end_ms);
  }
  return own;
}

std::vector<int> steps_of(std::span<const DeviceSpan> spans, std::span<const int64_t> launches) {
  std::vector<int> step_of, all;  // of launches, of spans
  for (size_t i = 0; i < launches.size(); ++i)
    step_of.insert(step_of.end(), static_cast<size_t>(launches[i]), static_cast<int>(i));
  const auto is_launch = [](const DeviceSpan& s) { return s.kind != DeviceSpan::kCopy; };
  if (std::count_if(spans.begin(), spans.end(), is_launch) != std::ssize(step_of)) return {};
  auto next = step_of.begin();
  for (const DeviceSpan& s : spans) all.push_back(is_launch(s) ? *next++ : -1);
  return all;
}

double busy_ms(std::span<const DeviceSpan> spans) {
  const std::vector<double> own = own_ms(spans);
  return std::accumulate(own.begin(), own.end(), 0.0);
}

double length_ms(std::span<const DeviceSpan> spans) {
  double end = 0;
  for (const DeviceSpan& s : spans) end = std::max(end, s.end_ms);
  return spans.empty() ? 0 : end - spans[0].begin_ms;
}

std::string gaps_of(const RunTrace& trace, double step_ms) {
  if (trace.spans.empty()) return cat("gaps between kernels: unknown: ", trace.missing);
  const double busy = busy_ms(trace.spans), length = length_ms(trace.spans);
  return printed(
      "gaps between kernels: %.2f %% of a traced step (%zu kernels and copies, %.4f ms "
      "of %.4f); %.2f %% of an untraced one of %.4f ms",
      100 * (length - busy) / std::max(length, 1e-9), trace.spans.size(), busy, length,
      100 * std::max(0.0, step_ms - busy) / std::max(step_ms, 1e-9), step_ms);
}

}  // namespace tegula
