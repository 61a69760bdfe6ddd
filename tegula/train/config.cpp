#include "tegula/train/config.h"

#include <cmath>

#include "tegula/base/range.h"
#include "tegula/base/str.h"
#include "tegula/base/text.h"

namespace tegula {

bool TrainConfig::was_said(std::string_view flag) const { return contains(said, flag); }

std::string stages_at_text(const TrainConfig& c) { return joined(c.stages_at, ","); }

int64_t decay_steps(const TrainConfig& c) {
  return c.lr_decay_steps > 0 ? c.lr_decay_steps : c.steps;
}

double learning_rate(const TrainConfig& c, int64_t step) {
  if (step < c.warmup)
    return c.lr * static_cast<double>(step + 1) / static_cast<double>(c.warmup + 1);
  const int64_t end = decay_steps(c);
  if (step >= end || end <= c.warmup) return c.min_lr;
  const double t = static_cast<double>(step - c.warmup) / static_cast<double>(end - c.warmup);
  return c.min_lr + (c.lr - c.min_lr) * 0.5 * (1 + std::cos(M_PI * t));
}

void apply_depth(TrainConfig& c, int64_t depth) {
  c.model.n_layers = depth;
  c.model.d_model = 64 * depth;
  c.model.n_heads = depth;
  c.lr = 1e-3 * std::sqrt(256.0 / static_cast<double>(c.model.d_model));
  c.min_lr = c.lr / 10;
}

}  // namespace tegula
