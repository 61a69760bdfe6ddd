// Session: a plan bound to memory; run() is the one interpreter. It decides nothing, and its loop
// allocates nothing.
//
//   auto s = Session::create(plan, rank);
//   s->bind("tokens", data);           // every parameter, once or per run
//   s->run();                          // or run(extents) for symbolic dims
//   s->result("loss").as<float>()[0];
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "tegula/plan/plan.h"
#include "tegula/runtime/rank.h"
#include "tegula/runtime/store.h"

namespace tegula {

class MemoryWatch;  // runtime/memory_watch.h

// Filled by run() when asked: what each step took, over all runs. Reused between runs, so nothing
// allocates.
struct StepStats {
  double seconds = 0;
  double math_flops = 0;
  double executed_flops = 0;
};

class Session {
 public:
  // Allocates the arena. Parameters without memory are bound later.
  static Result<std::unique_ptr<Session>> create(std::shared_ptr<const Plan> plan, Rank& rank);
  // A session in memory that someone else owns (a sub-plan's; plans that run in turns). Of a plan
  // for a rank's device, arena and parameters lie there.
  Session(std::shared_ptr<const Plan> plan, Rank& rank, void* arena);

  const Plan& plan() const { return *plan_; }
  Status bind(std::string_view param, void* data);
  void bind(int param, void* data);
  // Binds every weight and state parameter to the store's tensor of its name (made if absent). What
  // the plan writes is the store's own from then on; what it reads may be borrowed.
  Status bind_store(Store& store);

  // extents: one per symbol of the plan (may be empty when there are none). Error: an extent out of
  // bounds, a parameter without memory.
  Status run(std::span<const int64_t> extents = {});

  // Touches every page of the arena as the steps will: each buffer's parts by the threads whose
  // parts of a loop they are. Done by create() where memory has several nodes.
  void touch_arena();

  // A result's place: valid until the next run; shape at the extents of the last run.
  TensorRef result(std::string_view name) const;
  TensorRef result(int index) const;
  TensorRef param(int index) const;

  // Of this session's runs; the rank's are of all its sessions.
  Counters& counters() { return counters_; }
  Region& arena() { return arena_; }
  // One entry per step; null turns timing off.
  void collect(std::vector<StepStats>* stats) { stats_ = stats; }

  // Watches every step from now on, regions' too; null: nobody does, and nothing is paid. What it
  // finds is run()'s error.
  void watch(MemoryWatch* watch);

  // Called after every step when set (debugging, NaN hunts): return false to stop the run.
  void (*observer)(void* context, const Session&, size_t step) = nullptr;
  void* observer_context = nullptr;
  TensorRef step_output(size_t step, size_t index) const;

 private:
  struct Bound {  // one step, ready to launch
    std::vector<TensorRef> in, out;
    Attrs attrs;                            // the step's, with dims at the run's extents
    std::vector<Type> in_types, out_types;  // for references
    void* workspace = nullptr;
    void (*launch)(const KernelCall&) = nullptr;  // the kernel's
    bool is_empty = false;                        // at the run's extents no result has an element
    std::vector<std::unique_ptr<Session>> regions;
  };
  struct Use {  // of a parameter by a bound step
    TensorRef* ref = nullptr;
    int64_t byte_offset = 0;
  };
  TensorRef locate(const PlanTensor& t) const;
  void bind_step(size_t i);
  void set_extents();
  Status check_workspaces() const;
  void launch(size_t i);
  Status launch_watched(size_t i);
  void run_reference(const Step& step, Bound& bound);

  std::shared_ptr<const Plan> plan_;
  Rank* rank_;
  Region arena_;
  uint8_t* base_ = nullptr;
  std::vector<void*> param_data_;
  std::vector<int64_t> extents_;
  std::vector<Bound> bound_;
  std::vector<std::vector<Use>> uses_;  // of each parameter
  bool needs_peers_ = false;            // some step is one that ranks execute together
  Counters counters_;
  std::vector<StepStats>* stats_ = nullptr;
  MemoryWatch* watch_ = nullptr;
};

}  // namespace tegula
