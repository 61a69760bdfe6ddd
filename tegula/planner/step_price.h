// Seconds and bytes of a training step under a layout.
//
//   step = m·t + bubble + exposed dp + optimizer,   t: the slowest stage's micro-batch, F + B + W
// Where other stages are faster p−1 is Σ of theirs over t (at least, where the last is slowest).
//   bubble: GPipe, 1F1B (p−1)·t; interleaved (p−1)/v·t; TeraPipe (p−1)·t of one slice; zero bubble
//     (p−1)·(F + B − W), and W more for each micro-batch that m lacks of p, its second form
//     (p−1)·max(F, F + B − 2W) [Narayanan et al. 2021, section 2.2; Li et al. 2021; Qi et al. 2023,
//     section 2]; ZB-V, Chimera and DualPipe by their lists' longest paths (turns_clock.h); these
//     are what tegula/plan/simulate finds for the schedules' lists (pipeline_test.cpp)
// t holds what a layer waits for: tensor parallelism's collectives (2 all-reduces forward and 2
// backward, or as many pairs of all-gather and reduce-scatter with sp) in full, the ring of context
// parallelism beyond attention's time, or its all-to-alls (Ulysses) and experts' in full.
// In DualPipe's pairs, a forward part beside a backward one, experts' all-to-alls hide behind the
// pair's computing [DeepSeek-V3 2024, section 3.2.1]. Messages between stages hide where a rank has
// two stages or chunks, one computing while the other sends.
// dp: the gradients' all-reduce (ZeRO 1, 2: reduce-scatter, and all-gather of weights) beyond one
// micro-batch's backward (forward); ZeRO 2 reduces in every micro-batch; ZeRO 3 gathers weights
// twice and reduces gradients once in each. What two ranks of opposite pipelines hold goes between
// them, too, each its share.
#pragma once

#include <array>
#include <map>
#include <tuple>

#include "tegula/base/memory.h"
#include "tegula/cost/collective.h"
#include "tegula/planner/host_time.h"
#include "tegula/planner/memory.h"
#include "tegula/planner/turns_clock.h"

namespace tegula::planner {

// Where the seconds go; they sum to the step.
struct Waterfall {
  double compute = 0, memory = 0, launch = 0;
  double tp = 0, cp = 0, ep = 0, pp = 0, dp = 0;
  double optimizer = 0, bubble = 0;
  double rest = 0;  // by the framework's factor
  double host = 0;  // beyond all of that (host_time.h)
  double exposed_comm() const { return tp + cp + ep + pp + dp; }
  std::array<Part, 12> parts() const;
  double total() const {
    return compute + memory + launch + exposed_comm() + optimizer + bubble + rest + host;
  }
};

struct StepPrice {
  Layout layout;
  Waterfall seconds;
  MemoryBytes memory;  // of the worst stage
  int64_t worst_stage = 0;
  bool is_bound = false;  // a list's bubble is not in it: the step takes longer
  double together = 1;    // share of their time that parts that go together take (DualPipe)
  // FLOPs of the step, all devices: by all keys; those that are done, without keys that kernels
  // skip.
  double flops_model = 0, flops_hw = 0;

  double step_s() const { return seconds.total(); }
  double peak_bytes() const { return memory.total(); }
  double bubble() const { return seconds.bubble / step_s(); }
  std::string_view bound_by() const;  // compute, memory, network, launch, host
};

// One layer's prices for a micro-batch, or a slice of one: the same for all layouts that cut it
// alike.
struct LayerPrice {
  Seconds forward, input_backward, weight_backward, recompute;
  Seconds first, last_forward, last_input_backward, last_weight_backward;
  double tp_forward = 0, tp_backward = 0, tp_recompute = 0, tp_last = 0;
  double cp_forward = 0, cp_backward = 0, ep = 0;  // ep: one direction
  double boundary_bytes = 0;                       // what goes from stage to stage
  double products_again = 0, attention_again = 0;  // shares of their FLOPs that are done again
  ActivationBytes activations;
  HostOps host;
};

// A rank of the pipeline and what it holds.
struct StageMemory {
  int64_t layers = 0;
  MemoryBytes memory;
};

// Prices layouts of one job. Not safe for several threads: it remembers what layers cost.
class StepPricer {
 public:
  StepPricer(const ModelSpec& model, const ParamCount& params, const ClusterSpec& cluster,
             const Job& job, const Efficiency& efficiency = kExpected);

  ~StepPricer();

  // The layout must have passed check_layout.
  StepPrice price(const Layout& layout);
  // Without the longest path of a schedule that has no closed form, which takes most of the time.
  StepPrice bound(const Layout& layout);
  // Seconds of a collective with what its link reaches.
  double comm(Collective what, double bytes, const RankSpan& group) const;
  const LayerPrice& layer(const Layout& layout);
  // Between neighbouring stages, what it reaches.
  Link stage_link(const Layout& layout) const;
  // Every rank of a layout's pipeline.
  std::vector<StageMemory> stages(const Layout& layout);
  const Job& job() const { return job_; }
  const ModelSpec& model() const { return model_; }

 private:
  struct Stage;
  struct ButForZero;
  const ButForZero& but_for_zero(const Layout& layout);
  LayerPrice price_layer(const Layout& layout) const;
  void price_context(const Layout& layout, const LayerWork& work, LayerPrice& p) const;
  void price_layer_comm(const Layout& layout, const LayerWork& work, LayerPrice& p) const;
  const Dealt& dealt(const Layout& layout);
  Stage slowest_stage(const Layout& layout, const LayerPrice& p);
  StepPrice price(const Layout& layout, bool is_bound);
  void add_pipeline(const Layout& layout, const LayerPrice& p, const Stage& stage,
                    StepPrice& price);
  double list_bubble(const Layout& layout, const Stage& stage, const StepPrice& price);
  void add_data_parallel(const Layout& layout, const RankParams& p, const Stage& stage,
                         StepPrice& price) const;
  void add_copies(const Layout& layout, double weights, StepPrice& price) const;
  void add_memory(const ButForZero& priced, StepPrice& price) const;

  using Key = std::tuple<int64_t, int64_t, ContextCut, int64_t, int64_t, int64_t, bool, Remat>;
  const ModelSpec& model_;
  ParamCount params_;
  const ClusterSpec& cluster_;
  Job job_;
  Efficiency efficiency_;
  TokenFlops flops_;
  std::map<Key, LayerPrice> layers_;
  std::map<std::tuple<int64_t, Turns, int64_t>, Dealt> dealt_;
  std::unique_ptr<ButForZero> last_;
  TurnsClock clock_;
};

}  // namespace tegula::planner
