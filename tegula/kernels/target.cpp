#include "tegula/kernels/target.h"

#include <unistd.h>

#include <cstdio>

#include "tegula/base/algorithm.h"
#include "tegula/base/container.h"
#include "tegula/base/text.h"
#include "tegula/base/thread_pool.h"
#include "tegula/kernels/kernel.h"

namespace tegula {

static constexpr int64_t kGiB = int64_t{1} << 30;

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

std::string to_string(const Target& t) {
  std::string text = t.name;
  if (t.device == DeviceKind::kCuda)
    text += cat(": CUDA ", t.capability / 10, ".", t.capability % 10, ", ", t.multiprocessors,
                " multiprocessors");
  else
    text +=
        cat(": CPU, ", isa_name(t.isa), ", ", t.n_threads, " thread", t.n_threads == 1 ? "" : "s");
  if (t.memory_bytes > 0)
    text += printed(", %.0f GiB", static_cast<double>(t.memory_bytes) / static_cast<double>(kGiB));
  if (t.bf16_flops_per_s > 0)
    text += printed(", %.3g TFLOP/s in bf16, %.3g in f32, %.3g TB/s", t.bf16_flops_per_s / 1e12,
                    t.f32_flops_per_s / 1e12, t.bytes_per_s / 1e12);
  return text;
}

}  // namespace tegula
