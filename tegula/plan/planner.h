// Planner: make_plan's working state, and regions as plans of their own. Internal to plan/.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/passes/lower_tile.h"
#include "tegula/plan/plan.h"

namespace tegula {

// How a region's plan meets its step's tensors: whoever runs it binds them, so nothing is copied.
// The plan has the function's parameters, then one more for every result with memory of its own.
struct RegionPorts {
  std::vector<PlanTensor> params;  // type and strides of each parameter
  std::vector<int> overwrites;     // per result: the parameter whose memory it takes; -1: its own
  std::vector<LeastExtent> least;  // of the whole plan
};

// A concat whose operands were written where it puts them: nothing is launched for it.
bool is_concat_in_place(const Step& s);

class Planner {
 public:
  // ports: null for a whole plan, whose donations are the function's own.
  Planner(std::shared_ptr<const Module> module, FuncId id, const PlanOptions& options,
          const RegionPorts* ports = nullptr)
      : module_(std::move(module)), f_((*module_)[id]), options_(options), ports_(ports) {
    plan_.function = id;
  }

  Result<Plan> run();

 private:
  // make_plan.cpp: nodes to steps on virtual slots.
  void add_params();
  int new_slot(int64_t bytes, const std::string& name, Phase phase);
  Status add_node(const Node& n);
  Status add_collective(const Node& n);
  Status add_step(const Node& n);
  bool add_view(const Node& n, const OpCall& call);
  PlanTensor add_copy(const PlanTensor& from, const Node& cause);
  Step copy_step(const PlanTensor& from, const PlanTensor& to, const Node& cause);
  void choose(Step& step, const Node& n);
  int64_t most_workspace(const Step& step, const Node& n, const KernelQuery& at_bounds) const;
  const KernelDef* kernel_for(const Step& step, const std::vector<PlanTensor>& operands,
                              const Node& n) const;
  Status plan_fused(Step& step, const Node& n);
  // Work in the background ends before what lies in `holds` is read; kNone: all of it does.
  void end_background(ValueId holds);
  void make_foreground(Step& step);
  // Sums of layers before the last begun one are brought to their end, oldest first, where more is
  // under way than one layer's: they keep whole gradients and what the other ranks' are brought
  // into.
  void end_older_sums();
  // regions.cpp
  Status plan_regions(Step& step, const Node& n);

  // slots.cpp: which slots are one, and where they lie.
  struct Home {
    int result = 0;
    PlanTensor tensor;
    bool is_read = false;  // it is a parameter of the function: its old contents may be wanted
  };
  void find_homes();
  void find_lifetimes();
  void rescue_old_values();
  void settle_results();
  bool settles_in_place(const PlanTensor& value, const PlanTensor& home);
  void overwrite_operands();
  void note_uses();
  bool may_take_over(int from, int to, int producer, bool alias_at_producer);
  void merge(int from, int to);
  const Step* launched_after(const Step& s) const;
  std::vector<int> launched_with() const;
  void finish_layout();
  // concat.cpp
  std::map<int, Step> joined_in_place(int concat) const;
  void join_in_place();

  std::shared_ptr<const Module> module_;
  const Function& f_;
  const PlanOptions& options_;
  const RegionPorts* ports_;
  Plan plan_;
  std::vector<PlanTensor> tensors_;  // per value
  std::vector<int> producer_;        // per slot: the step that first writes it; -1: parameter
  std::vector<Home> homes_;          // where results must end up
  // The steps that touch a slot, and the results that lie in it (-1 - result): a list per slot,
  // from its first use (-1: none) to its last.
  struct Use {
    int step = 0, next = -1;
  };
  std::vector<Use> uses_;
  std::vector<std::pair<int, int>> uses_of_;
  std::vector<std::pair<ValueId, int>> in_background_;  // its result, the step that starts it
  std::string sums_layer_;  // of the newest sum in the background; bytes of its sums so far
  int64_t sums_bytes_ = 0, last_sums_bytes_ = 0;  // last: of the layer before
  int n_background_ = 0;
  bool joins_launches_ = false;  // of several steps: on CUDA, without a backward
  // Layers share bodies: lowered once, with the attributes they were lowered for.
  std::map<FuncId, std::pair<Attrs, TileLowering>> lowered_;
};

bool same_view(const PlanTensor& a, const PlanTensor& b);

}  // namespace tegula
