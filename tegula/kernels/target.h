// Target: the machine that a plan is made for, as a value. Everything that chooses (passes,
// kernels' supports, workspaces and sizes, orders, prices) asks a Target and no global, so that a
// plan for any machine can be made, read and compared on any other. Only what runs a plan
// (Session::create, measure_on_device) asks whether this is that machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tegula/base/result.h"

namespace tegula {

enum class DeviceKind : uint8_t { kCpu, kCuda };
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAmx };
inline constexpr Isa kIsas[] = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};
std::string_view isa_name(Isa isa);

// One core's caches, from the nearest cache outward; what several cores share counts by its share.
struct CacheSizes {
  static constexpr int kLevels = 3;
  int64_t bytes[kLevels] = {32 << 10, 512 << 10, 4 << 20};
  friend bool operator==(const CacheSizes&, const CacheSizes&) = default;
};

struct Target {
  std::string name;  // a preset's, or what the machine calls itself
  DeviceKind device = DeviceKind::kCpu;
  int n_threads = 1;  // workspaces are sized for at most so many (CPU)

  Isa isa = Isa::kPortable;  // CPU
  CacheSizes caches;         // CPU

  int capability = 0;        // CUDA: 90 is compute capability 9.0
  int multiprocessors = 0;   // CUDA
  int64_t smem_bytes = 0;    // CUDA: of a block, at most
  int64_t l2_bytes = 0;      // CUDA
  int64_t memory_bytes = 0;  // of the device; 0: unknown

  // Peaks: f32 and bf16 operations (a multiply-add is two) and bytes of memory a second, of all
  // threads or the whole device. 0: unknown.
  double f32_flops_per_s = 0, bf16_flops_per_s = 0, bytes_per_s = 0;
  // The shares of them that large calls were measured to reach; 1: not measured.
  double flops_efficiency = 1, bytes_efficiency = 1;

  // With several ranks: what others show cannot be read here but is brought (kernels/moves.h), as
  // their engine shares no memory or a link is slowed; collectives then have a workspace.
  bool brings = false;
  // A link from one rank to another: seconds of a message, bytes a second. 0: not known.
  double link_s = 0, link_bytes_per_s = 0;

  friend bool operator==(const Target&, const Target&) = default;

  // This machine's CPU: instruction set, caches, memory; peaks are not measured here.
  static Target this_cpu(int n_threads = 1);
  // The same for one thread, made once: what a query of a CPU kernel is for if it does not say.
  static const Target& one_thread();
  // Whether what is planned for this target runs where `machine` is; else why not, and what to do.
  Status runs_on(const Target& machine) const;
};

// "h200", "zen4", …: what data sheets say; CPU presets are of one socket, all its cores.
std::span<const Target> target_presets();
// A preset by name. The error lists the names.
Result<Target> find_target(std::string_view name);

// "h200: CUDA 9.0, 132 multiprocessors, 140 GiB, 989 TFLOP/s in bf16, 67 in f32, 4.8 TB/s"
std::string to_string(const Target& target);

}  // namespace tegula
