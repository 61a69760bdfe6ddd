// Prints what tegula plan says of a step of one rank.
#pragma once

#include <optional>

#include "tegula/planner/calibration.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/step.h"

namespace tegula::cli {

// Measurements of a few steps that ran.
struct MeasuredStep {
  double step_s = 0;  // the median's, by kernel_seconds of runtime/probe.h
  int64_t runs = 0, flops = 0, peak_bytes = 0;
};

struct Planned {
  StepFunctions functions;
  std::vector<StepPart> parts;     // of a step
  Compiled compiled;               // the first of them
  std::vector<Compiled> the_rest;  // with accumulation
  std::vector<const Plan*> plans() const;
  StepCost cost;
  size_t nodes = 0;
  double build_ms = 0, total_ms = 0;
  int64_t whole_arena_bytes = 0;                // without --blockwise
  std::optional<DeviceMemory> of_device;        // with --device-memory
  std::optional<planner::Predicted> predicted;  // a step's, with --calibrate
  std::optional<MeasuredStep> measured;         // with --measure
};

struct PrintOptions {
  double tokens_total = 0;  // of a run; 0: not asked
  bool verbose = false, timings = false;
};
// One object on a line; or text.
void print_json(const Planned& planned, const TrainConfig& config, const PrintOptions& options);
void print_text(const Planned& planned, const TrainConfig& config, const PrintOptions& options);

}  // namespace tegula::cli
