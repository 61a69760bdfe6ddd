#include "tegula/plan/stage_chain.h"

namespace tegula {

namespace {

class ChainBuilder {
 public:
  ChainBuilder(const Schedule& schedule, std::span<const StagePrice> stages)
      : schedule_(schedule), stages_(stages) {
    out_.program.n_stages = schedule.shape.n_stages;
    out_.program.n_micro_batches = schedule.shape.n_micro_batches;
  }

  StageChain build() && {
    const int n = out_.program.n_stages;
    for (int s = 0; s < n; ++s) add(PartKind::kForward, s, price(s).forward_s);
    if (schedule_.trains) {
      for (int s = n; s-- > 0;) add_backward(s);
      for (int s = 0; s < n; ++s) add(PartKind::kUpdate, s, price(s).update_s);
    }
    for (int s = 0; s < n; ++s) add_flows(s);
    return std::move(out_);
  }

 private:
  const StagePrice& price(int s) const { return stages_[static_cast<size_t>(s)]; }
  bool is_apart() const { return schedule_.weight_gradients_apart; }

  void add(PartKind kind, int stage, double seconds) {
    out_.program.parts.push_back({kind, stage, kNone});
    out_.seconds.push_back(seconds);
  }
  void add_backward(int s) {
    const StagePrice& p = price(s);
    add(PartKind::kBackward, s, p.backward_s + (is_apart() ? 0 : p.weight_gradients_s));
    if (is_apart()) add(PartKind::kWeightGradient, s, p.weight_gradients_s);
  }

  void flow(std::string_view name, int stage, int64_t bytes, int from, std::vector<int> to) {
    out_.program.flows.push_back(
        {cat(name, ".", stage), {DType::kU8, {bytes}}, from, std::move(to)});
  }
  void add_flows(int s) {
    const Program& g = out_.program;
    const StagePrice& p = price(s);
    const int f = g.find(PartKind::kForward, s), b = g.find(PartKind::kBackward, s),
              w = g.find(PartKind::kWeightGradient, s), u = g.find(PartKind::kUpdate, s);
    if (s + 1 < g.n_stages)
      flow("output", s, p.output_bytes, f, {g.find(PartKind::kForward, s + 1)});
    if (!schedule_.trains) return;
    flow("saved", s, p.saved_bytes, f, is_apart() ? std::vector{b, w} : std::vector{b});
    flow("saved_for_backward", s, p.saved_for_backward_bytes, f, {b});
    if (s > 0)
      flow("input_gradient", s, price(s - 1).output_bytes, b, {g.find(PartKind::kBackward, s - 1)});
    if (is_apart()) flow("saved_for_weights", s, p.saved_for_weights_bytes, b, {w});
    flow("grad", s, p.gradient_bytes, is_apart() ? w : b, {u});
  }

  const Schedule& schedule_;
  std::span<const StagePrice> stages_;
  StageChain out_;
};

}  // namespace

StageChain chain_of(const Schedule& schedule, std::span<const StagePrice> stages) {
  TEGULA_CHECK(stages.size() == static_cast<size_t>(schedule.shape.n_stages));
  return ChainBuilder(schedule, stages).build();
}

}  // namespace tegula
