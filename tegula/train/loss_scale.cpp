#include "tegula/train/loss_scale.h"

#include "tegula/ops/math.h"
#include "tegula/train/optimizer.h"

namespace tegula {

namespace {
constexpr const char *kScale = "loss_scale", *kGood = "loss_scale.good",
                     *kSkipped = "loss_scale.skipped";

Var constant(Builder& b, double value) { return fill(b, value, {DType::kF32, {}}); }
}  // namespace

LossScale LossScale::params(Builder& b) {
  const Type f32{DType::kF32, {}};
  return {b.param(kScale, f32, Role::kState), b.param(kGood, f32, Role::kState),
          b.param(kSkipped, f32, Role::kState)};
}

std::vector<Var> LossScale::unscaled(Builder& b, const std::vector<WeightSpec>& specs,
                                     std::vector<Var> grads) const {
  b.set_phase(Phase::kUpdate);
  const Var inverse = constant(b, 1) / scale;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Scope scope(b, specs[i].scope);
    grads[i] = grads[i] * inverse;
  }
  b.set_phase(Phase::kForward);
  return grads;
}

void LossScale::follow(Builder& b, Var norm, int64_t every) const {
  b.set_phase(Phase::kUpdate);
  const Var is_good = is_finite_norm(norm), zero = constant(b, 0);
  const Var in_a_row = good + 1.0;
  const Var grows = lt(constant(b, static_cast<double>(every) - 0.5), in_a_row);
  const Var larger = select(grows, min(scale * 2.0, kMostLossScale), scale);
  set_state(b, kScale, select(is_good, larger, scale * 0.5));
  set_state(b, kGood, select(is_good, select(grows, zero, in_a_row), zero));
  set_state(b, kSkipped, select(is_good, skipped, skipped + 1.0));
  b.set_phase(Phase::kForward);
}

Status init_loss_scale(Store& store, double scale) {
  if (!store.find(kScale).data) return {};
  float value = static_cast<float>(scale);
  return store.fill(kScale, contiguous_ref(&value, {DType::kF32, {}}));
}

Result<LossScaleState> loss_scale_of(const Store& store) {
  if (!store.find(kScale).data || !store.find(kSkipped).data) return LossScaleState{};
  float scale = 1, skipped = 0;
  TEGULA_TRY(store.read(kScale, contiguous_ref(&scale, {DType::kF32, {}})));
  TEGULA_TRY(store.read(kSkipped, contiguous_ref(&skipped, {DType::kF32, {}})));
  return LossScaleState{static_cast<double>(scale), static_cast<int64_t>(skipped)};
}

Result<LossScaleState> fetch_loss_scale(Session& step) {
  const double scale = TEGULA_TRY(step.fetch(kScale)).as<float>()[0];
  const float skipped = TEGULA_TRY(step.fetch(kSkipped)).as<float>()[0];
  return LossScaleState{scale, static_cast<int64_t>(skipped)};
}

}  // namespace tegula
