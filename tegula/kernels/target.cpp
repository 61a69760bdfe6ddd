#include "tegula/kernels/target.h"

#include <unistd.h>

#include <cstdio>
#include <vector>

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/base/container.h"
#include "tegula/base/thread_pool.h"
#include "tegula/kernels/cuda/capability.h"
#include "tegula/kernels/kernel.h"

namespace tegula {

namespace {

constexpr int64_t kKiB = 1 << 10, kMiB = 1 << 20, kGiB = int64_t{1} << 30;

Target cpu(const char* name, Isa isa, int cores, int64_t l1, int64_t l2, int64_t l3_share,
           double ghz, int f32_per_clock, int bf16_per_clock, double gb_per_s) {
  Target t;
  t.name = name, t.isa = isa, t.n_threads = cores;
  t.caches = {{l1, l2, l3_share}};
  t.f32_flops_per_s = 1e9 * ghz * cores * f32_per_clock;
  t.bf16_flops_per_s = 1e9 * ghz * cores * bf16_per_clock;
  t.bytes_per_s = 1e9 * gb_per_s;
  return t;
}

Target gpu(const char* name, int capability, int multiprocessors, int64_t memory_mib,
           int64_t l2_bytes, double bf16_tflops, double f32_tflops, double gb_per_s) {
  Target t;
  t.name = name, t.device = DeviceKind::kCuda;
  t.capability = capability, t.multiprocessors = multiprocessors;
  t.smem_bytes = cuda::max_smem_bytes(capability);
  t.memory_bytes = memory_mib * kMiB, t.l2_bytes = l2_bytes;
  t.bf16_flops_per_s = 1e12 * bf16_tflops, t.f32_flops_per_s = 1e12 * f32_tflops;
  t.bytes_per_s = 1e9 * gb_per_s;
  return t;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Target Target::this_cpu(int n_threads) {
  Target t;
  t.name = "this machine", t.n_threads = n_threads, t.isa = machine_isa();
  const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  for (int level = 0; level < CacheSizes::kLevels; ++level)
    if (const int64_t bytes = sysconf(names[level]); bytes > 0) t.caches.bytes[level] = bytes;
  // Cores share the last one. A machine of many sockets has several; then this is an underestimate.
  t.caches.bytes[2] = std::max(t.caches.bytes[1], t.caches.bytes[2] / std::max(usable_cores(), 1));
  t.memory_bytes = usable_memory();
  return t;
}

const Target& Target::one_thread() {
  static const Target target = this_cpu(1);
  return target;
}

Status Target::runs_on(const Target& machine) const {
  if (device != machine.device)
    return unsupported(cat("it is made for ", to_string(*this), ", this is ", to_string(machine),
                           ": plan it for this machine"));
  if (device == DeviceKind::kCpu) {
    if (isa != machine.isa)
      return unsupported(cat("it is made for the instruction set ", isa_name(isa),
                             ", this process uses ", isa_name(machine.isa),
                             ": make the plan again here"));
    return {};
  }
  if (capability != machine.capability || multiprocessors != machine.multiprocessors)
    return unsupported(cat("it is made for ", to_string(*this), ", the device is ",
                           to_string(machine), ": make the plan again for it"));
  return {};
}

std::span<const Target> target_presets() {
  // Memory as nvidia-smi gives it; peaks of NVIDIA's data sheets (dense, SXM where there is one);
  // of CPUs the multiply-adds of their vector units at the all-core clock, and memory at its rated
  // speed.
  static const std::vector<Target> presets = {
      gpu("a100", 80, 108, 81920, 40 * kMiB, 312, 19.5, 2039),
      gpu("a10g", 86, 80, 23028, 6 * kMiB, 70, 31.2, 600),
      gpu("l4", 89, 58, 23034, 48 * kMiB, 121, 30.3, 300),
      gpu("l40s", 89, 142, 46068, 96 * kMiB, 362, 91.6, 864),
      gpu("rtx4090", 89, 128, 24564, 72 * kMiB, 165, 82.6, 1008),
      gpu("h100", 90, 132, 81559, 50 * kMiB, 989, 67, 3350),
      gpu("h200", 90, 132, 143771, 50 * kMiB, 989, 67, 4800),
      cpu("zen3", Isa::kAvx2, 64, 32 * kKiB, 512 * kKiB, 4 * kMiB, 2.45, 32, 32, 204.8),
      cpu("zen4", Isa::kAvx512, 96, 32 * kKiB, 1 * kMiB, 4 * kMiB, 2.4, 32, 64, 460.8),
      cpu("sapphire-rapids", Isa::kAmx, 56, 48 * kKiB, 2 * kMiB, 1920 * kKiB, 2.0, 64, 2048, 307.2),
  };
  return presets;
}

Result<Target> find_target(std::string_view name) {
  std::string names;
  for (const Target& t : target_presets()) {
    if (is_same_name(t.name, name)) return t;
    names += cat(names.empty() ? "" : ", ", t.name);
  }
  return invalid_argument(cat("there is no target '", name, "'; targets are ", names));
}

std::string to_string(const Target& t) {
  std::string text = t.name;
  char line[128];
  if (t.device == DeviceKind::kCuda)
    std::snprintf(line, sizeof line, ": CUDA %d.%d, %d multiprocessors", t.capability / 10,
                  t.capability % 10, t.multiprocessors);
  else
    std::snprintf(line, sizeof line, ": CPU, %s, %d thread%s", std::string(isa_name(t.isa)).c_str(),
                  t.n_threads, t.n_threads == 1 ? "" : "s");
  text += line;
  if (t.memory_bytes > 0)
    std::snprintf(line, sizeof line, ", %.0f GiB",
                  static_cast<double>(t.memory_bytes) / static_cast<double>(kGiB)),
        text += line;
  if (t.bf16_flops_per_s > 0)
    std::snprintf(line, sizeof line, ", %.3g TFLOP/s in bf16, %.3g in f32, %.3g TB/s",
                  t.bf16_flops_per_s / 1e12, t.f32_flops_per_s / 1e12, t.bytes_per_s / 1e12),
        text += line;
  return text;
}

}  // namespace tegula
