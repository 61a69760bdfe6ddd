// A kernel: what it supports, in which numeric order it computes, and how to launch it.
//
// Descriptors are data and free of CUDA, so that `tegula plan` works for any device anywhere.
// One kernel per file; the table is generated from the file names (symbol = stem).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tegula/base/attrs.h"
#include "tegula/base/counter.h"
#include "tegula/base/result.h"
#include "tegula/base/tensor.h"
#include "tegula/base/thread_pool.h"
#include "tegula/kernels/target.h"

namespace tegula {

namespace tile {
struct Program;
}

// The real work of a kernel, counted per executed tile by the kernel itself, never from a plan.
// `math_flops`: the operations of the result: no masked element, but rows that ids leave out;
// `executed_flops`: those of every tile that ran, masked elements and padding included.
// `claimed_bytes`: the most of its workspace that a launch has laid out (common/workspace.h) since
// somebody set it to 0.
struct Counters {
  Counter math_flops, executed_flops, claimed_bytes;
  void add(int64_t math, int64_t executed) { math_flops.add(math), executed_flops.add(executed); }
  // By the launching thread.
  void claim(int64_t bytes) {
    if (bytes > claimed_bytes.load()) claimed_bytes = bytes;
  }
};

// A choice of sizes within one kernel, fixed in the plan: value i belongs to knob i of its
// TuningSpace (kernels/tuning.h), and 0 leaves that knob to the kernel's own rule. Never a matter
// of bits: every tuning keeps the kernel's numeric order.
struct Tuning {
  static constexpr int kKnobs = 8;
  int32_t knob[kKnobs] = {};
  friend bool operator==(const Tuning&, const Tuning&) = default;
};
struct TuningSpace;
struct CollectiveMoves;  // kernels/moves.h

// The types a kernel is asked about at plan time. Strides are those the plan would pass, with
// symbolic dims at their bounds.
struct KernelQuery {
  const Attrs* attrs = nullptr;
  std::span<const TensorRef> in;           // data is null
  std::span<const TensorRef> out;          // data is null
  const tile::Program* program = nullptr;  // of an op with a body: fused, dot_fused
  const Target* target = &Target::one_thread();
  Tuning tuning = {};
};

struct KernelCall {
  const Attrs* attrs = nullptr;
  std::span<const TensorRef> in;
  std::span<const TensorRef> out;
  void* workspace = nullptr;  // workspace_bytes(query) bytes, 64-byte aligned, contents undefined
  const tile::Program* program = nullptr;  // of an op with a body: fused, dot_fused
  ThreadPool* pool = nullptr;
  Counters* counters = nullptr;    // never null
  Tuning tuning = {};              // the query's
  const Target* target = nullptr;  // the query's, for kernels of a device
};

struct KernelDef {
  std::string_view name;  // = file stem
  std::string_view op;    // the OpDef it implements
  DeviceKind device = DeviceKind::kCpu;
  Isa min_isa = Isa::kPortable;
  // The numeric order of the result. Kernels of one op, dtype and order give identical bits.
  std::string_view order;
  bool repeats_bits = true;  // in every run; else some sum is of parts as they come
  std::string_view doc;
  bool writes_strides = false;  // results may have any strides; else they are contiguous
  // Higher wins among kernels that support a call; rungs kept for reading have priority < 0 and
  // are chosen only by name.
  int priority = 0;
  bool (*supports)(const KernelQuery&) = nullptr;
  // The same with the reason, and what is supported nearest; null: none is told.
  Status (*check)(const KernelQuery&) = nullptr;
  int64_t (*workspace_bytes)(const KernelQuery&) = nullptr;  // null: none
  // Null: a plug-in brings it (kernels/device.h).
  void (*launch)(const KernelCall&) = nullptr;
  const TuningSpace* tuning = nullptr;  // null: nothing to choose
  // A collective's: what `launch` does where memory is shared, in parts for the background.
  const CollectiveMoves* moves = nullptr;
};

// The CPU's kernels, then the descriptors of CUDA's, each ordered by name.
std::span<const KernelDef* const> all_kernels();

// The instruction set that kernels use: the widest of this machine, unless a probe of a few
// milliseconds finds a narrower one faster (once a process). TEGULA_ISA=portable|avx2|avx512|amx
// forces one. The choice changes no bit, but for bf16 in AMX's tiles, which have their own orders.
Isa machine_isa();

}  // namespace tegula
