#include "tegula/train/optimizer.h"

#include <limits>

#include "tegula/ops/math.h"
#include "tegula/train/order_free_norm.h"

namespace tegula {

StepScalars StepScalars::params(Builder& b) {
  const Type f32{DType::kF32, {}};
  return {b.param("lr", f32), b.param("c1", f32), b.param("c2", f32)};
}

void set_state(Builder& b, const std::string& name, Var v) {
  b.result(name, v);
  b.donate(name, name);
}

namespace {

// Rows first, then their sums: rows run in parallel.
Var sum_of_squares(Var g) {
  Var s = g * g;
  while (s.rank() > 0) s = reduce_sum(s, {s.rank() - 1});
  return s;
}

Var sum_of_squares(Builder& b, const std::vector<WeightSpec>& specs,
                   const std::vector<Var>& grads) {
  std::vector<Var> squares;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Scope scope(b, specs[i].scope);
    squares.push_back(sum_of_squares(grads[i]));
  }
  Var total;
  for (const Var& s : squares) total = total.valid() ? total + s : s;
  return total;
}

Var exact_norm(Builder& b, const std::vector<WeightSpec>& specs, const std::vector<Var>& grads) {
  std::vector<std::string_view> scopes;
  for (const WeightSpec& s : specs) scopes.emplace_back(s.scope);
  return order_free_norm(b, grads, scopes);
}

Var state(Builder& b, const std::string& name, const Type& type) {
  return b.param(name, {DType::kF32, type.shape}, Role::kState);
}

}  // namespace

Var is_finite_norm(Var norm) {
  return lt(norm, static_cast<double>(std::numeric_limits<float>::max()));
}

Var apply_optimizer(Builder& b, const OptimizerConfig& config, const StepScalars& scalars,
                    const std::vector<WeightSpec>& specs, const std::vector<Var>& weights,
                    std::vector<Var> grads, bool is_exact) {
  b.set_phase(Phase::kUpdate);
  const Var norm = is_exact ? exact_norm(b, specs, grads) : sqrt(sum_of_squares(b, specs, grads));
  // A step whose gradient is not finite changes nothing: its cause can still be found, and the last
  // good weights are still there to save.
  const Var is_finite = is_finite_norm(norm);
  if (config.clip > 0) {
    const Var scale = min(div(fill(b, config.clip, norm.type()), norm + 1e-6), 1.0);
    for (size_t i = 0; i < grads.size(); ++i) {
      const Scope scope(b, specs[i].scope);
      grads[i] = grads[i] * scale;
    }
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    const Scope scope(b, specs[i].scope);
    const std::string& name = specs[i].name;
    const Var w = weights[i], g = grads[i];
    Var direction = g;
    if (config.name == "adamw") {
      const Var old_m = state(b, "adam.m." + name, w.type());
      const Var old_v = state(b, "adam.v." + name, w.type());
      const Var m = old_m * config.beta1 + g * (1 - config.beta1);
      const Var v = old_v * config.beta2 + g * g * (1 - config.beta2);
      direction = m * scalars.c1 / (sqrt(v * scalars.c2) + config.eps);
      set_state(b, "adam.m." + name, select(is_finite, m, old_m));
      set_state(b, "adam.v." + name, select(is_finite, v, old_v));
    } else if (config.name == "momentum") {
      const Var old_m = state(b, "momentum." + name, w.type());
      direction = old_m * config.beta1 + g;
      set_state(b, "momentum." + name, select(is_finite, direction, old_m));
    }
    if (specs[i].decays && config.weight_decay > 0) direction = direction + w * config.weight_decay;
    set_state(b, name, select(is_finite, w - direction * scalars.lr, w));
  }
  b.set_phase(Phase::kForward);
  return norm;
}

}  // namespace tegula
