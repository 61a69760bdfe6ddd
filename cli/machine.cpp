#include "cli/machine.h"

#include "cli/command.h"
#include "cli/process.h"
#include "tegula/base/amounts.h"
#include "tegula/runtime/memory.h"

namespace tegula::cli {

namespace {
// In whole MiB, rounded down.
std::string mebibytes(int64_t bytes) { return cat(bytes >> 20, "MiB"); }

// Whether a step within this budget is possible.
bool fits(TrainConfig config, int64_t budget) {
  config.memory_bytes = budget, config.checkpoint = "auto", config.tune = "off";
  const auto functions = build_step_functions(config);
  if (!functions.ok()) return false;
  const FuncId f = config.accumulate > 1 ? functions->micro_step : functions->train_step;
  return compile(functions->module, f, compile_options(config, Target::one_thread())).ok();
}
}  // namespace

Flag add_threads(const Command& cmd, int& threads) {
  const Flag option = whole(cmd.add_option("--threads", threads, "0: all cores"), 0, 4096);
  return option.each([](const std::string& text) {
    const int cores = usable_cores();
    if (const auto asked = read_count(text, 0, 4096); asked.ok() && *asked > cores)
      print_note(
          cat(*asked, " threads share ", cores, " cores, which is slower than --threads ", cores));
  });
}

std::string memory_note(const TrainConfig& config, const StepCost& cost) {
  const int64_t has = machine_memory();
  if (cost.peak_bytes() <= has) return "";
  const std::string note = cat("this takes ", mebibytes(cost.peak_bytes()),
                               " of memory and there is ", mebibytes(has), ": ");
  // A tenth is left to the rest of the process and to others.
  const int64_t room = has / 10 * 9 - cost.state_bytes;
  if (room < (1 << 20))
    return cat(note, "weights and their state alone take ", mebibytes(cost.state_bytes),
               ", so no --memory makes it fit; choose a smaller model");
  if (!fits(config, room >> 20 << 20))
    return cat(note, "not even recomputing makes it fit; choose a smaller --batch or --seqlen");
  return cat(note, "--memory ", mebibytes(room), " makes it fit");
}

}  // namespace tegula::cli
