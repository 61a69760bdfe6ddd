// The parts of `tegula plan`, each in a source of its name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "tegula/kernels/target.h"
#include "tegula/planner/calibration.h"
#include "tegula/runtime/compile.h"
#include "tegula/train/config.h"
#include "tegula/train/device_memory.h"
#include "tegula/train/ranks.h"
#include "tegula/train/step.h"

namespace tegula::cli {

// Prints what tegula plan says of a step of one rank.

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

// tegula plan --measure: a few steps run here, beside what was planned of them.

// Runs the planned step on random tokens: the first two runs watched (runtime/memory_watch.h), then
// so many that they take a second, at least three. Errors: no memory; a kernel that wrote where it
// may not.
Result<MeasuredStep> measure_step(const TrainConfig& config, const Planned& planned);

// `tegula plan --graph`: the text of what is planned (ir/text.h).

// "step": a training step as models write it; on a mesh, after the passes that see it whole, with
// the sharding of every value. "rank": what one rank, the mesh's first, runs after all passes, with
// its collectives.
Status print_graph(const TrainConfig& config, const Target& target, std::string_view which);

// `tegula plan --mesh`: what each rank of a mesh does, holds and sends in a training step.

Status plan_ranks(const TrainConfig& config, const Target& target);

// tegula plan --mesh pp=…: what each rank of a pipeline does, holds and sends.

// Prints it, or one JSON object with config.json.
Status plan_pipeline(const TrainConfig& config, const Target& target);

// tegula plan --stages: what each stage of a cut step costs, and what its schedule waits and keeps.

struct Stages {
  int64_t n = 1;
  int64_t ranks = 0;   // 0: as many as the schedule has by default
  int64_t slices = 1;  // of a micro-batch's tokens
  double latency_us = 0, link_gb_per_s = 0;
  bool blocking_sends = false;
  double together = 1;          // share of their times' sum that parts that go together take
  std::vector<double> part_ms;  // F, B, W: of all stages, or of each; empty: by the roofline
  std::string gantt;            // a file
};

// --stages and what goes with it; returns --stages.
Flag add_stages(const Command& cmd, Stages& stages);

// Cuts at layers, so that the slowest stage is fastest. Prints a table, or one JSON object with
// c.json, and writes the picture that was asked for.
Status plan_stages(const TrainConfig& c, const Target& target, const Stages& stages);

// tegula plan --computation-layout, --shard, --search-sharding: a step over the ranks of any mesh,
// priced on an accelerator.

struct ShardingFlags {
  std::string mesh;     // "rows=2,cols=2"
  std::string layout;   // "batch=rows,hidden=cols"
  std::string tensors;  // ".c_fc.weight:1=cols"
  std::string on = "h100";
  bool searches = false;
  bool asked() const { return !layout.empty() || !tensors.empty() || searches; }
};

// After --mesh, without which none of them means anything.
void add_sharding(const Command& cmd, ShardingFlags& flags);
Status plan_sharding(const TrainConfig& config, const ShardingFlags& flags);

// tegula plan --conv: what every way to spread a convolution, or a product, over a mesh's axes
// takes.

struct ConvFlags {
  std::string shape;  // "batch=32,in=64,out=128,height=56,width=56,kernel=3,pad=1"
  bool asked() const { return !shape.empty(); }
};

// After --mesh, without which it means nothing; returns --conv.
Flag add_conv(const Command& cmd, ConvFlags& flags);
// `layout`: which axes cut what already; `on`: the accelerator. Half-precision elements if
// `is_half`.
Status plan_conv(const ConvFlags& flags, const std::string& mesh, const std::string& layout,
                 const std::string& on, bool is_half, bool as_json);

// tegula plan --calibrate: this CPU's kernel calls, timed once and kept, and what a step takes by
// them.

// The calibration of this machine, from the user's cache; calls on so many threads and in that
// dtype that it has not are timed first, some twenty seconds, and kept. Errors: those of compiling
// and of writing; a file that cannot be read is replaced, with a note.
Result<planner::Calibration> calibrate(const TrainConfig& config, int n_threads);
// A step by it, of the plans of its parts.
Result<planner::Predicted> predict_step(const TrainConfig& config, const Target& target,
                                        std::span<const StepPart> parts,
                                        std::span<const Plan* const> plans);

// tegula plan --occupancy KERNEL: how many threads of a kernel a GPU has at work, what limits them,
// and whether they keep its memory busy.

struct OccupancyFlags {
  std::string kernel;       // a part of a variant's name, or threads=…,registers=…,smem=…
  int64_t grid_blocks = 0;  // 0: not asked
  double latency_ns = 600;  // of a load from the GPU's memory
};

// --occupancy and what goes with it; returns --occupancy.
Flag add_occupancy(const Command& cmd, OccupancyFlags& flags);

// A table, or of one kernel an explanation; with `as_json` one JSON object.
Status print_occupancy(const Target& gpu, const OccupancyFlags& flags, bool as_json);

}  // namespace tegula::cli
