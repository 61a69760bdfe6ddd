#include "tegula/plan/flops_table.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tegula/ops/table.h"

namespace tegula {

namespace {

constexpr int kEmbedding = -1, kHead = 1 << 30, kNoLayer = -2;

// The layer that a name of a weight, its state or its gradient says; kNoLayer: none.
int layer_of(std::string_view name) {
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    if ((part == "h" || part == "layers") && end + 1 < name.size() && name[end + 1] >= '0' &&
        name[end + 1] <= '9')
      return std::atoi(std::string(name.substr(end + 1, 8)).c_str());
    at = end + 1;
  }
  return kNoLayer;
}

std::string name_of(int layer) {
  return layer == kEmbedding ? "embedding" : layer == kHead ? "head" : cat("layer ", layer);
}

// The part of a step that is its forward phase.
int64_t forward_flops(const Step& s) {
  if (s.phase != Phase::kForward) return 0;
  if (s.op != &linear_cross_entropy_grads_op) return s.flops;
  const std::vector<Type> in = {s.in[0].type, s.in[1].type, s.in[2].type};
  const std::vector<Type> out = {s.out[0].type, s.out[1].type};
  return flops_of({&linear_cross_entropy_op, &s.attrs, in, out, nullptr, {}});
}

// Which layer each step of a plan belongs to.
class Layers {
 public:
  explicit Layers(const Plan& plan) : plan_(plan) {}

  int next(const Step& s) {
    int own = kNoLayer, forward = kNoLayer, backward = kNoLayer;
    bool is_weight = false;
    const auto look = [&](const PlanTensor& t, bool is_input) {
      const Slot& slot = plan_.slots[static_cast<size_t>(t.slot)];
      if (slot.kind == SlotKind::kParam) {
        const Plan::Port& port = plan_.params[static_cast<size_t>(slot.param)];
        if (port.role == Role::kInput) return;
        is_weight = true;
        own = std::max(own, layer_of(port.name));
      } else if (const auto at = from_.find(t.holds); is_input && at != from_.end()) {
        const auto [from, is_forward] = at->second;
        if (is_forward)
          forward = std::max(forward, from);
        else if (s.phase == Phase::kUpdate)
          backward = std::max(backward, from);
        else  // gradients come from later layers
          backward = backward == kNoLayer ? from : std::min(backward, from);
      }
    };
    for (const PlanTensor& t : s.in) look(t, true);
    for (const PlanTensor& t : s.out) look(t, false);
    int layer = own;
    // Weights of no layer: tables before the first one, norms and heads after the last.
    if (layer == kNoLayer && is_weight)
      layer = forward >= 0 || s.phase != Phase::kForward ? kHead : kEmbedding;
    if (layer == kNoLayer) layer = forward != kNoLayer ? forward : backward;
    if (layer == kNoLayer) layer = kEmbedding;
    for (size_t k = 0; k < s.out.size(); ++k) {
      const bool is_gradient = s.op == &linear_cross_entropy_grads_op && k >= 2;
      from_[s.out[k].holds] = {layer, s.phase == Phase::kForward && !is_gradient};
    }
    return layer;
  }

 private:
  struct From {
    int layer;
    bool is_forward;
  };
  const Plan& plan_;
  std::map<ValueId, From> from_;
};

FlopsRow& row(std::vector<FlopsRow>& rows, const std::string& name) {
  for (FlopsRow& r : rows)
    if (r.name == name) return r;
  return rows.emplace_back(FlopsRow{name});
}

}  // namespace

void FlopsTable::add(const Plan& plan, int64_t times) {
  Layers layers_of_steps(plan);
  for (const Step& s : plan.steps) {
    const std::string layer = name_of(layers_of_steps.next(s));
    if (s.flops == 0) continue;
    const int64_t forward = forward_flops(s), rest = s.flops - forward;
    // The gradient of a weight may have taken the factor of its sum over micro-batches, an
    // update's.
    const bool is_update = s.phase == Phase::kUpdate && s.op->precision != Precision::kLow;
    for (FlopsRow* r : {&total, &row(layers, layer), &row(ops, std::string(s.op->name))}) {
      r->forward += times * forward;
      (is_update ? r->update : r->backward) += times * rest;
    }
  }
}

void FlopsTable::sort() {
  const auto place = [](const FlopsRow& r) {
    return r.name == "embedding" ? kEmbedding : r.name == "head" ? kHead : std::atoi(&r.name[6]);
  };
  std::sort(layers.begin(), layers.end(),
            [&](const FlopsRow& a, const FlopsRow& b) { return place(a) < place(b); });
  std::stable_sort(ops.begin(), ops.end(),
                   [](const FlopsRow& a, const FlopsRow& b) { return a.sum() > b.sum(); });
}

}  // namespace tegula
