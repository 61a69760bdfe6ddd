#include "tegula/kernels/cuda/describe/occupancy.h"

#include "tegula/base/round.h"

namespace tegula::cuda {

namespace {
constexpr int kWarp = 32, kMostThreads = 1024, kMostRegisters = 255, kQuarters = 4;
constexpr int kRegisterUnit = 256;                         // of a warp
constexpr int64_t kSmemUnit = 128, kSystemSmem = 1 << 10;  // of a block

int blocks_by_registers(const MultiprocessorLimits& have, const KernelUse& use, int warps) {
  const int of_warp = round_up(use.registers * kWarp, kRegisterUnit);
  if (of_warp == 0) return have.blocks;
  // A block alone must fit as if each quarter had as many of its warps as the fullest.
  if (round_up(warps, kQuarters) * of_warp > have.registers) return 0;
  return have.registers / kQuarters / of_warp * kQuarters / warps;
}

Status check(const Target& gpu, const KernelUse& use) {
  if (gpu.device != DeviceKind::kCuda)
    return invalid_argument(
        cat("occupancy of ", gpu.name, ": it is no GPU: --target h100, h200, a100, l4 …"));
  if (use.threads < 1 || use.threads > kMostThreads)
    return invalid_argument(
        cat("occupancy: a block of ", use.threads, " threads: 1 to ", kMostThreads));
  if (use.registers < 0 || use.registers > kMostRegisters)
    return invalid_argument(
        cat("occupancy: ", use.registers, " registers a thread: 0 to ", kMostRegisters));
  if (use.smem_bytes < 0 || use.smem_bytes > gpu.smem_bytes)
    return invalid_argument(cat("occupancy: ", use.smem_bytes, " bytes of shared memory a block: ",
                                gpu.name, " has 0 to ", gpu.smem_bytes));
  return {};
}
}  // namespace

MultiprocessorLimits multiprocessor_limits(int capability) {
  const bool is_small = capability == 86 || capability == 89 || capability >= 120;
  MultiprocessorLimits l;
  l.threads = is_small ? 1536 : 2048;
  l.blocks = capability == 86 ? 16 : is_small ? 24 : 32;
  l.smem_bytes = (is_small ? 100 : capability < 90 ? 164 : 228) << 10;
  return l;
}

Result<Occupancy> occupancy_of(const Target& gpu, const KernelUse& use) {
  TEGULA_TRY(check(gpu, use));
  const MultiprocessorLimits have = multiprocessor_limits(gpu.capability);
  const int warps = ceil_div(use.threads, kWarp), all_warps = have.threads / kWarp;
  const int64_t smem = round_up(use.smem_bytes + kSystemSmem, kSmemUnit);
  Occupancy o;
  o.limits = {{{"threads", all_warps / warps},
               {"blocks", have.blocks},
               {"registers", blocks_by_registers(have, use, warps)},
               {"shared memory", static_cast<int>(have.smem_bytes / smem)}}};
  o.blocks = have.blocks + 1;
  for (const Occupancy::Limit& l : o.limits)
    if (l.blocks < o.blocks) o.blocks = l.blocks, o.limited = l.by;
  o.share = static_cast<double>(o.blocks * warps) / all_warps;
  o.active_threads = int64_t{gpu.multiprocessors} * o.blocks * use.threads;
  return o;
}

Waves waves_of(const Target& gpu, const Occupancy& occupancy, int64_t grid_blocks) {
  Waves w;
  w.wave = int64_t{gpu.multiprocessors} * occupancy.blocks;
  if (w.wave == 0 || grid_blocks == 0) return w;
  w.whole = grid_blocks / w.wave, w.tail = grid_blocks % w.wave;
  w.efficiency = static_cast<double>(grid_blocks) /
                 static_cast<double>((w.whole + (w.tail > 0 ? 1 : 0)) * w.wave);
  return w;
}

}  // namespace tegula::cuda
