#include "tegula/plan/flops_table.h"

#include <cstdlib>
#include <unordered_map>

#include "tegula/base/algorithm.h"
#include "tegula/ops/table.h"
#include "tegula/plan/places.h"

namespace tegula {

namespace {

// In the order of the model.
int place_of(const std::string& part) {
  if (part == "embedding") return -1;
  if (part.starts_with("layer ")) return std::atoi(&part[6]);
  return part == "other" ? 1 << 30 : 1 << 29;
}

// The part of a step that is its forward phase.
int64_t forward_flops(const Step& s) {
  if (s.phase != Phase::kForward) return 0;
  if (s.op != &linear_cross_entropy_grads_op) return s.flops;
  const std::vector<Type> in = {s.in[0].type, s.in[1].type, s.in[2].type};
  const std::vector<Type> out = {s.out[0].type, s.out[1].type};
  return flops_of({&linear_cross_entropy_op, &s.attrs, in, out, nullptr, {}});
}

// Rows by name, as there are many of both layers and steps.
class RowsByName {
 public:
  explicit RowsByName(std::vector<FlopsRow>& rows) : rows_(rows) {
    for (size_t i = 0; i < rows.size(); ++i) index_.emplace(rows[i].name, i);
  }
  FlopsRow& operator[](const std::string& name) {
    const auto [at, is_new] = index_.emplace(name, rows_.size());
    return is_new ? rows_.emplace_back(FlopsRow{name}) : rows_[at->second];
  }

 private:
  std::vector<FlopsRow>& rows_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace

void FlopsTable::add(const Plan& plan, int64_t times) {
  RowsByName by_layer(layers), by_op(ops);
  for (const Step& s : plan.steps) {
    if (s.flops == 0) continue;
    const std::string layer = layer_of(s.scope);
    const int64_t forward = forward_flops(s), rest = s.flops - forward;
    // The gradient of a weight may have taken the factor of its sum over micro-batches, an
    // update's.
    const bool is_update = s.phase == Phase::kUpdate && s.op->precision != Precision::kLow;
    for (FlopsRow* r : {&total, &by_layer[layer], &by_op[std::string(s.op->name)]}) {
      r->forward += times * forward;
      (is_update ? r->update : r->backward) += times * rest;
    }
  }
}

void FlopsTable::sort() {
  std::stable_sort(layers.begin(), layers.end(), [](const FlopsRow& a, const FlopsRow& b) {
    return place_of(a.name) < place_of(b.name);
  });
  std::stable_sort(ops.begin(), ops.end(),
                   [](const FlopsRow& a, const FlopsRow& b) { return a.sum() > b.sum(); });
}

}  // namespace tegula
