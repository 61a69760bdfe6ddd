// The bytes that a run takes of its device's memory in all, and steps that fit a budget for that
// (`--device-memory`), where `--memory` is one for the arena alone.
//
//   in all = arena (activations, gradients, workspaces: the largest plan's, since they run in
//            turns) + weights and optimizer state + on a GPU: each plan's inputs there, what is
//            spare behind the arena, and what the plug-in holds
//
// The memory that the driver's context took before is not in it. The plug-in's share (kernels that
// were loaded, graphs, counters of kernels) is known only when all is loaded: kPluginBytes are kept
// for it. All else is what will be asked for, to the byte.
#pragma once

#include <span>

#include "tegula/train/step.h"

namespace tegula {

inline constexpr int64_t kPluginBytes = int64_t{64} << 20;
inline constexpr int64_t kSpareBytes = 1 << 16;  // behind an arena that is looked at after steps

struct DeviceMemory {
  int64_t arena_bytes = 0, state_bytes = 0;
  int64_t input_bytes = 0, plugin_bytes = 0;  // of a GPU
  int64_t rest_bytes() const { return state_bytes + input_bytes + plugin_bytes; }
  int64_t total_bytes() const { return arena_bytes + rest_bytes(); }
};
// The memory of a run that has a session of each of these plans.
DeviceMemory device_memory(const Target& target, std::span<const Plan* const> plans,
                           int64_t state_bytes);

struct DeviceFit {
  DeviceMemory memory;
  int64_t arena_budget_bytes = 0;  // TrainConfig::memory_bytes that gives it; 0: none is needed
};
// All plans of the run within most_bytes, by recomputing what must be. Error: out_of_memory, with
// the least budget that was found to do.
Result<DeviceFit> fit_device_memory(const TrainConfig& config, const Target& target,
                                    int64_t most_bytes);

// Error of a run that takes more than its device has free, with the budget that would fit.
Error more_than_free(const TrainConfig& config, const Target& target, const DeviceMemory& needs,
                     int64_t free_bytes);

}  // namespace tegula
