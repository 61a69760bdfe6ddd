// Session: a plan bound to memory; run() is the one interpreter. It decides nothing, and its loop
// allocates nothing.
//
//   auto s = Session::create(plan, rank);
//   s->bind("tokens", data);           // every parameter, once or per run
//   s->run();                          // or run(extents) for symbolic dims
//   s->result("loss").as<float>()[0];
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/kernels/device_call.h"
#include "tegula/runtime/bound_step.h"
#include "tegula/runtime/device_steps.h"
#include "tegula/runtime/store.h"

namespace tegula {

class Errand;       // kernels/peers.h
class MemoryWatch;  // runtime/memory_watch.h

// Filled by run() when asked: what each step took, over all runs. Reused between runs, so nothing
// allocates.
struct StepStats {
  double seconds = 0;
  double began_s = 0, ended_s = 0;  // the last run's, by the machine's steady clock; of a CPU
  double math_flops = 0;
  double executed_flops = 0;
  int64_t launches = 1;  // on a device, of a run: 0 where another step's has it (device_joins.cpp)
  DeviceSteps::Share in_one;
};

class Session {
 public:
  // Allocates the arena, on the rank's device if it has one. Parameters without memory are bound
  // later. Errors: no plan; the plan is for another target.
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Plan> plan, Rank& rank);
  // A session in memory that someone else owns (a sub-plan's; plans that run in turns), of a rank
  // with a device: there, as all that is bound.
  Session(std::shared_ptr<const Plan> plan, Rank& rank, void* arena);

  const Plan& plan() const { return *plan_; }
  const Rank& rank() const { return *rank_; }
  Status bind(std::string_view param, void* data);
  void bind(int param, void* data);  // a number that the plan has not is run()'s error
  // Binds an input that lies on the host: a device gets its values with every run.
  Status bind_input(std::string_view param, const void* host);
  // Binds every weight and state parameter to the store's tensor of its name, or of the one that
  // `name` gives it (made if absent). What the plan writes is the store's own from then on; what it
  // reads may be borrowed.
  using NameInStore = std::string (*)(std::string_view param, int64_t slot);
  Status bind_store(Store& store, NameInStore name = nullptr, int64_t slot = 0);

  // extents: one per symbol of the plan (may be empty when there are none). Error: an extent out of
  // bounds, a parameter without memory.
  Status run(std::span<const int64_t> extents = {});

  // Touches every page of the arena as the steps will: each buffer's parts by the threads whose
  // parts of a loop they are. Done by create() where memory has several nodes.
  void touch_arena();

  // A result on the host: its place there, or a copy from the device, which has then done all that
  // was enqueued. Valid until it is fetched again.
  Result<TensorRef> fetch(std::string_view result);
  // A result's place: valid until the next run; shape at the extents of the last run. Null data:
  // the plan has none.
  TensorRef result(std::string_view name) const;
  TensorRef result(int index) const;
  TensorRef param(int index) const;

  // The counters of this session's runs; the rank's are of all its sessions.
  Counters& counters() { return counters_; }
  Region& arena() { return arena_; }
  // One entry per step, made if it is missing; null turns timing off.
  void collect(std::vector<StepStats>* stats) {
    stats_ = stats;
    if (stats && stats->size() < bound_.size()) stats->resize(bound_.size());
  }

  const std::vector<StepStats>* stats() const { return stats_; }

  // Watches every step from now on, regions' too; null: nobody does, and nothing is paid. What it
  // finds is run()'s error.
  void watch(MemoryWatch* watch);

  // Called after every step when set (debugging, NaN hunts): return false to stop the run.
  void (*observer)(void* context, const Session&, size_t step) = nullptr;
  void* observer_context = nullptr;
  // When the rest of what runs in the background is done (plan/plan.h, Step): asked after every
  // step for each, true: at once. Null: where it ends.
  bool (*completes)(void* context, int number) = nullptr;
  void* completes_context = nullptr;
  TensorRef step_output(size_t step, size_t index) const;
  // Whether a device's steps become one graph (default), see device_steps.h.
  void capture(bool captures);
  // Kernels, copies and fills of a device that a run enqueues for a step; of a CPU 0.
  int64_t launches(size_t step) const { return on_device_ ? on_device_->launches(step) : 0; }
  // The shares of steps that are one launch: DeviceSteps::shares. Otherwise nothing.
  Result<std::vector<DeviceSteps::Share>> shares() const {
    return on_device_ ? on_device_->shares() : std::vector<DeviceSteps::Share>();
  }
  // A body's steps at these extents as they are bound now, made ready; for the loop's own.
  Result<std::vector<DeviceSteps::Ready>> take_ready(std::span<const int64_t> extents);

 private:
  struct Use {  // of a parameter by a bound step
    TensorRef* ref = nullptr;
    int64_t byte_offset = 0;
  };
  TensorRef locate(const PlanTensor& t) const;
  void bind_step(size_t i);
  void set_extents();
  Status check_workspaces() const;
  Status run_step(size_t i);
  void launch(size_t i, Peers* peers);
  DeviceCall call_of(size_t i, Peers* peers);
  // background.cpp
  struct Running {  // in the background: step, the ranks' errand, its state
    size_t step = 0;
    Errand* errand = nullptr;
    bool is_done = false;
  };
  void launch_among_peers(size_t i);
  void complete(Running& work);
  void complete_some();
  Status launch_watched(size_t i);
  Status run_on_device();

  std::shared_ptr<const Plan> plan_;
  Rank* rank_;
  Region arena_;
  uint8_t* base_ = nullptr;
  std::vector<void*> param_data_;
  std::vector<int64_t> extents_;
  std::vector<BoundStep> bound_;
  std::unique_ptr<DeviceSteps> on_device_;  // null: a CPU
  std::vector<std::vector<uint8_t>> fetched_;
  std::vector<std::vector<Use>> uses_;  // of each parameter
  std::optional<Error> misuse_;         // of bind()
  bool needs_peers_ = false;            // some step is one that ranks execute together
  std::vector<Running> running_;
  Counters counters_;
  std::vector<StepStats>* stats_ = nullptr;
  MemoryWatch* watch_ = nullptr;
};

}  // namespace tegula
