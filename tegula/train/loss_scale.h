// Dynamic loss scaling for training in f16, in which small gradients would vanish: the loss is
// differentiated S times as large, so that gradients in f16 are too, and the gradients of weights
// are divided by S in f32.
//
//   g = ∇(S · loss) / S
//   ‖g‖ finite:      the update; S ← 2 S after `every` such steps in a row, at most kMostLossScale
//   ‖g‖ not finite:  no weight and no moment changes (train/optimizer.h); S ← S / 2
//
// State, f32 scalars that lie where the weights do and are saved with the moments:
//   loss_scale           S, a power of two, so that neither product nor quotient rounds
//   loss_scale.good      steps since S last changed
//   loss_scale.skipped   steps that changed nothing, of the whole run (exact up to 2^24)
// [Micikevicius et al. 2018, section 3.2]
#pragma once

#include <vector>

#include "tegula/models/model.h"
#include "tegula/runtime/session.h"

namespace tegula {

inline constexpr double kMostLossScale = 4294967296.0;  // 2^32
// Where gradients overflow even so, no scale is to blame.
inline constexpr double kLeastLossScale = 1.0 / 1024;

struct LossScale {
  Var scale, good, skipped;
  static LossScale params(Builder& b);

  // Gradients of S · loss -> those of the loss, as part of the update. One for each of `specs`.
  std::vector<Var> unscaled(Builder& b, const std::vector<WeightSpec>& specs,
                            std::vector<Var> grads) const;
  // The state after a step whose gradient has this norm.
  void follow(Builder& b, Var norm, int64_t every) const;
};

// The scale in the state; for a run that does not scale its loss: 1 and 0.
struct LossScaleState {
  double scale = 1;
  int64_t skipped = 0;
};
Status init_loss_scale(Store& store, double scale);
Result<LossScaleState> loss_scale_of(const Store& store);
// After the last run of a step that scales its loss.
Result<LossScaleState> fetch_loss_scale(Session& step);

}  // namespace tegula
