#include "tegula/train/device_memory.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/plan/memory.h"

namespace tegula {

namespace {

std::string mebibytes_up(int64_t bytes) { return cat(((bytes - 1) >> 20) + 1, "MiB"); }

Result<DeviceMemory> planned(TrainConfig config, const Target& target, int64_t arena_budget) {
  if (arena_budget > 0) config.memory_bytes = arena_budget, config.checkpoint = "auto";
  config.tune = "off";  // no bit and no size depends on it
  const StepFunctions functions = TEGULA_TRY(build_step_functions(config));
  std::vector<std::shared_ptr<const Plan>> plans;
  std::vector<const Plan*> all;
  const auto add = [&](FuncId f) -> Status {
    plans.push_back(TEGULA_TRY(compile(functions.module, f, compile_options(config, target))).plan);
    all.push_back(plans.back().get());
    return {};
  };
  for (const StepPart& part : parts_of_step(config, functions)) TEGULA_TRY(add(part.function));
  const StepCost cost = TEGULA_TRY(step_cost(config, all));
  TEGULA_TRY(add(functions.eval_loss));
  all.insert(all.end(), static_cast<size_t>(micro_groups(config).n_slots() - 1), all[0]);
  return device_memory(target, all, cost.state_bytes);
}

// The least arena above `low`, which is too small, that was found to work, as `high` does; to a
// sixty-fourth.
int64_t least_arena(const TrainConfig& config, const Target& target, int64_t low, int64_t high) {
  const int64_t step = std::max<int64_t>(high / 64, 1);
  while (high - low > step) {
    const int64_t middle = low + (high - low) / 2;
    (planned(config, target, middle).ok() ? high : low) = middle;
  }
  return high;
}

}  // namespace

DeviceMemory device_memory(const Target& target, std::span<const Plan* const> plans,
                           int64_t state_bytes) {
  DeviceMemory m;
  m.state_bytes = state_bytes;
  const bool is_cpu = target.device == DeviceKind::kCpu;
  if (!is_cpu) m.plugin_bytes = kPluginBytes + kSpareBytes;
  for (const Plan* plan : plans) {
    m.arena_bytes = std::max(m.arena_bytes, plan->arena_bytes);
    for (const Plan::Port& p : plan->params)
      if (!is_cpu && p.role == Role::kInput)
        m.input_bytes += round_up(p.tensor.type.bytes(), kAlignment);
  }
  return m;
}

Result<DeviceFit> fit_device_memory(const TrainConfig& config, const Target& target,
                                    int64_t most_bytes) {
  const DeviceMemory whole = TEGULA_TRY(planned(config, target, 0));
  if (whole.total_bytes() <= most_bytes) return DeviceFit{whole, 0};
  const int64_t room = std::max<int64_t>(most_bytes - whole.rest_bytes(), 0);
  if (room > 0)
    if (const auto fits = planned(config, target, room); fits.ok()) return DeviceFit{*fits, room};
  const int64_t least = least_arena(config, target, room, whole.arena_bytes) + whole.rest_bytes();
  return out_of_memory(cat("--device-memory: ", most_bytes, " bytes are too few: weights and ",
                           "state take ", whole.state_bytes, ", inputs and the plug-in ",
                           whole.rest_bytes() - whole.state_bytes, ", the step ", whole.arena_bytes,
                           " or less with recomputing; ", mebibytes_up(least),
                           " would do, or a smaller --batch or --seqlen"));
}

Error more_than_free(const TrainConfig& config, const Target& target, const DeviceMemory& needs,
                     int64_t free_bytes) {
  const std::string found = cat("this run takes ", needs.total_bytes(), " bytes of ", target.name,
                                ", which has ", free_bytes, " free: ");
  const auto fits = fit_device_memory(config, target, free_bytes);
  if (!fits.ok())
    return out_of_memory(
        cat(found, "not even recomputing makes it fit (", fits.error().message, ")"));
  return out_of_memory(cat(found, "--device-memory ",
                           fits->memory.total_bytes() >> 20 < free_bytes >> 20
                               ? mebibytes_up(fits->memory.total_bytes())
                               : cat(free_bytes),
                           " recomputes as much as makes it fit"));
}

}  // namespace tegula
