// DeviceSteps: a session's steps on a device. They are made ready once, then enqueued; from the
// second run on that nothing changes for they are one captured graph (a CUDA graph), so that a run
// costs the host one launch. Internal to runtime/.
//
// Inputs that lie on the host cross in one copy from pinned memory, which belongs to the graph.
// Rounds of a loop whose number is known are steps one after another, bodies' pointers and all;
// where the data decides (while, cond) the host waits for it.
//
// A step that no kernel of the device runs is done on the host (Plan::host_steps counts them), by a
// kernel of the CPU or else the op's reference: the device is waited for, operands and results
// cross the bus, and nothing is captured.
#pragma once

#include <vector>

#include "tegula/base/memory.h"
#include "tegula/kernels/device.h"
#include "tegula/runtime/bound_step.h"
#include "tegula/runtime/memory.h"
#include "tegula/runtime/rank.h"

namespace tegula {

// By a step's launches.
struct StepTouched : Touched {
  bool is_all = false;  // it cannot be told
};

class DeviceSteps {
 public:
  DeviceSteps(const Plan& plan, Rank& rank, std::vector<BoundStep>& steps,
              const std::vector<int64_t>& extents);
  ~DeviceSteps();

  // Memory on the device for a parameter whose values are read from `host` before each run.
  Result<void*> mirror(int param, const void* host);
  // Other memory or extents: everything is to be made ready anew.
  void forget();
  // Makes the steps ready. Error: no kernel of that name in the plug-in; a kernel's.
  Status prepare();
  // Enqueues what mirrors hold and all steps.
  Status run();
  // The same step by step: send() first.
  Status send();
  Status run_step(size_t i);

  struct Ready {
    std::vector<std::unique_ptr<Prepared>> launches;  // none: on the host, or empty
    int64_t math_flops = 0, executed_flops = 0;
  };
  // prepare(), and what it made is the caller's.
  Result<std::vector<Ready>> take();

  bool captures = true;
  // The work of the kernels of a run, as they said when they were made ready.
  int64_t math_flops(size_t step) const { return ready_[step].math_flops; }
  int64_t executed_flops(size_t step) const { return ready_[step].executed_flops; }
  // Kernels, copies and fills that a run enqueues for a step.
  int64_t launches(size_t step) const;
  // For each step that is done by the launch of step `of` (Device::put_in_one), its share of that
  // one's time in the last run.
  struct Share {
    int of = -1;
    double share = 0;
  };
  Result<std::vector<Share>> shares() const;

 private:
  struct Mirror {
    int param = 0;
    const void* host = nullptr;
    int64_t offset = 0, bytes = 0;
  };
  class Recorder;
  class AtOnce;
  // Enqueued without the host; else it is done while the device waits.
  bool is_on_device(const Step& step) const;
  Status compile_all();
  // Steps whose launches are of one kind become one, that of the first, where what is in between
  // allows it; and a launch that may begin with the one before it does.
  Status join_launches();
  Status put_in_one(std::vector<StepTouched>& touched, std::span<const MemoryRange> constant);
  std::vector<MemoryRange> constants() const;
  DeviceCall call_of(size_t i);
  Status prepare_step(size_t i);
  Result<Ready> prepare_kernel(const KernelDef& kernel, DeviceCall& call);
  Result<Ready> prepare_copy(const TensorRef& from, const TensorRef& to);
  Status run_on_host(size_t i);
  bool run_cpu_kernel(size_t i, std::span<const TensorRef> in, std::span<const TensorRef> out,
                      Counters& counters);
  void fill_pinned();
  Status enqueue_all();

  const Plan& plan_;
  Rank& rank_;
  Device& device_;
  std::vector<BoundStep>& steps_;
  const std::vector<int64_t>& extents_;
  std::vector<Ready> ready_;
  std::vector<std::vector<size_t>> in_one_;  // steps that are one launch, of the first
  std::vector<bool> on_device_;              // each step
  bool is_ready_ = false, is_sent_ = false;  // sent: a copy out of pinned_ may still go on
  bool has_host_steps_ = false, is_compiled_ = false;
  int n_runs_ = 0;  // since it was made ready
  std::unique_ptr<Prepared> graph_;
  std::vector<Mirror> mirrors_;
  Region mirrored_;  // on the device: all of them
  void* pinned_ = nullptr;
};

}  // namespace tegula
