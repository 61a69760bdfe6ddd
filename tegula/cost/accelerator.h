// Accelerator: one device as its data sheet describes it, and the links to its neighbours.
//
// Peaks are dense (no sparsity) operations a second, a multiply-add counted as two; `sparse` is the
// factor that structured sparsity adds. Bandwidths are of one direction unless they say otherwise:
// NVLink's "900 GB/s" of an H100 is 450 each way, and a collective's speed is that of one way.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/cost/efficiency.h"
#include "tegula/kernels/target.h"

namespace tegula {

enum class Number : uint8_t { kF64, kF32, kTf32, kBf16, kF8, kI8 };
inline constexpr int kNumbers = 6;
std::string_view number_name(Number n);  // "bf16"
double bytes_of(Number n);
// "bf16", "fp8", "f32", … Error: lists them.
Result<Number> parse_number(std::string_view name);

struct Link {
  double bytes_per_s = 0;  // one way, of one device
  double seconds = 0;      // latency of one message
};

enum class Collective : uint8_t { kAllReduce, kAllGather, kReduceScatter, kAllToAll };
inline constexpr int kCollectives = 4;
inline constexpr std::string_view kCollectiveNames[] = {"all_reduce", "all_gather",
                                                        "reduce_scatter", "all_to_all"};

// Whose flash attention: FlashAttention 1 [Dao et al. 2022], 2 [Dao 2023], 3 [Shah et al. 2024],
// cuDNN's. kDefault: the last that is known on a device.
enum class AttentionKernel : uint8_t { kDefault, kFlash1, kFlash2, kFlash3, kCudnn };
inline constexpr std::string_view kKernelNames[] = {"flash", "flash1", "flash2", "flash3", "cudnn"};
inline constexpr size_t kAttentionKernels = 5;
inline std::string_view kernel_name(AttentionKernel k) { return kKernelNames[static_cast<int>(k)]; }

// most · s / (s + half) of the device's peak, over sequences of s tokens.
struct Curve {
  double most, half;
  double at(double seqlen) const { return most * seqlen / (seqlen + half); }
};
inline constexpr double kNarrowHead = 96;  // elements
// By is_backward, of heads up to kNarrowHead and of wider ones.
struct AttentionCurves {
  Curve narrow[2] = {{.66, 0}, {.54, 0}}, wide[2] = {{.66, 0}, {.54, 0}};
  bool is_known = false;
  Curve* of(double head_dim) { return head_dim > kNarrowHead ? wide : narrow; }
};
// The share of a link that a collective reaches, and the least that a message takes.
struct LinkShare {
  double share, message_s = 0;
};

// The host's seconds, forward and backward together: an op, a norm or product, that under
// autocast; how many layers one is that torch.utils.checkpoint calls; a layer that fully_shard
// wraps, whose weights are gathered once or twice; a parameter in the optimizer, in DDP's hooks.
inline constexpr int kHostConstants = 8;

// The shares that a device and its host sustain (sustained.h). Defaults: where nothing is known.
struct Sustained {
  // The share of the peak that large products reach at the full clock, the k at which they reach
  // half of it, and what products alone leave of the clock.
  double product = 0.75, k_half = 0, clock = 1;
  bool is_known = false;  // else these three are assumed
  double memory = 0.9;
  // Links within a node and between nodes, by Collective; to a neighbour as an all-to-all's.
  LinkShare inside[kCollectives] = {{.78}, {.78}, {.78}, {.78}};
  LinkShare between[kCollectives] = {{.85}, {.85}, {.85}, {.85}};
  AttentionCurves attention[kAttentionKernels];
  double host[kHostConstants] = {30e-6, 104e-6, 198e-6, 2.2, 2.8e-3, 3.8e-3, 4.5e-6, 35e-6};
  Efficiency fast = kFast, slow = kSlow;  // the ends of an interval
};

struct Accelerator {
  std::string name;
  std::string source;                 // what the numbers are from
  double flops_per_s[kNumbers] = {};  // by Number; 0: the device has not that type
  bool has_bf16 = true;               // else its numbers of two bytes are f16, at the same rate
  double memory_bytes = 0, memory_bytes_per_s = 0;
  int64_t visible_bytes = 0;    // of its memory, to programs; 0: the kernels are not planned for it
  double sram_bytes = 0;        // of one multiprocessor or core
  double l2_bytes = 0;          // shared by all of them
  int capability = 0;           // CUDA's: 90 is 9.0; 0: another's device
  int64_t multiprocessors = 0;  // 0: products are not cut into tiles of whole ones
  int64_t devices_per_node = 1;
  Link inside, between;         // within a node, and a device's share of the network
  double host_bytes_per_s = 0;  // one way, to the memory of the host; 0: not known
  double launch_s = 0;          // least time of an op
  double product_start_s = 0;   // and more of a product: its first tiles arrive, its last ones go
  double dollars_per_hour = 0;  // rent of one device; 0: not known
  Sustained sustained;
  // Measured on a CPU; else empty, and the law of `sustained` holds: the share of the peak that
  // products of so many rows reach, ascending.
  struct RowShare {
    double rows = 0, share = 0;
  };
  std::vector<RowShare> matmul_shares;

  double peak(Number n) const { return flops_per_s[static_cast<int>(n)]; }
  // Operations for a byte at which products of that type stop being bound by memory.
  double ridge(Number n) const { return peak(n) / memory_bytes_per_s; }
};

// The rows of the table (devices.cpp), of which target_presets() are those that have kernels.
std::span<const Accelerator> accelerator_presets();
// By name or another name of it, without regard to case and dashes ("H100", "h100-sxm"); null:
// there is none.
const Accelerator* find_preset(std::string_view name);

}  // namespace tegula
