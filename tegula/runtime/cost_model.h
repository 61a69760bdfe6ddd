// CostModel: what a trial will take, learned from those that were timed.
//
// Ridge regression: y ≈ c + w·x with Σ (y - c - w·x)² + λ|w|² least, x standardised over all
// points; c is the weight of one more feature, always 1. A = λI + Σ x xᵀ is kept as its Cholesky
// factor; sqrt(xᵀ A⁻¹ x) says how little is known about a point, in units of the residual noise.
// Cost: a refit is d³/6 multiply-adds for d features, a prediction d, an uncertainty d²/2.
// [Hoerl and Kennard 1970; the bound as in Li et al. 2010, LinUCB]
#pragma once

#include <cstddef>
#include <vector>

namespace tegula {

class CostModel {
 public:
  // One row of features for every point that may ever be asked about.
  explicit CostModel(const std::vector<std::vector<double>>& features, double ridge = 1.0);

  void add(size_t point, double y);
  // As if the point had been timed: only uncertainty shrinks. Until the next fit().
  void imagine(size_t point);
  void fit();
  double predict(size_t point) const;
  double uncertainty(size_t point) const;
  // Root mean square of what the fit leaves unexplained.
  double noise() const { return noise_; }

 private:
  void clear();
  void factorise();
  size_t d_ = 0;
  double ridge_, mean_ = 0, noise_ = 0;  // mean of y, taken off before the fit
  std::vector<std::vector<double>> x_;   // standardised
  std::vector<size_t> points_;
  std::vector<double> y_;
  std::vector<double> a_, factor_;  // d × d, row-major; lower triangle
  std::vector<double> w_;
};

}  // namespace tegula
