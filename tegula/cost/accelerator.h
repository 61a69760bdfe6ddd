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
  // The shares that its kernels sustain (sustained.h): the share of the peak that large products
  // reach at the full clock, the k at which they reach half of it, what products alone leave of
  // the clock, and what they are from.
  struct Sustained {
    double product = 0.75, k_half = 0, clock = 1;
    std::string_view source = kAssumed;
    static constexpr std::string_view kAssumed = "not known: assumed";
    bool is_known() const { return source != kAssumed; }
  } sustained;
  // Measured on a machine; else empty and 0, and sustained.h's are taken. The share of the peak
  // products of so many rows reach, ascending; which of the bandwidth all ops.
  struct RowShare {
    double rows = 0, share = 0;
  };
  std::vector<RowShare> matmul_shares;
  double memory_share = 0;

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
