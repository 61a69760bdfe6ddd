#include "tegula/planner/budget.h"

#include <cmath>

namespace tegula::planner {

namespace {
constexpr double kE = 1.69, kA = 406.4, kB = 410.7, kAlpha = 0.34, kBeta = 0.28;
constexpr double kTokensPerParam = 20;
}  // namespace

Optimum chinchilla(double flops) {
  const double n = std::sqrt(flops / (6 * kTokensPerParam));
  return {n, kTokensPerParam * n};
}

Optimum chinchilla_by_loss(double flops) {
  const double g = std::pow(kAlpha * kA / (kBeta * kB), 1 / (kAlpha + kBeta));
  const double n = g * std::pow(flops / 6, kBeta / (kAlpha + kBeta));
  return {n, flops / 6 / n};
}

double predicted_loss(double params, double tokens) {
  return kE + kA / std::pow(params, kAlpha) + kB / std::pow(tokens, kBeta);
}

double critical_batch_tokens(double loss) { return 2e8 / std::pow(loss, 1 / 0.21); }

}  // namespace tegula::planner
