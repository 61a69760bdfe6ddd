#include "tegula/runtime/cost_model.h"

#include <cmath>

namespace tegula {

namespace {
constexpr double kConstantRidge = 1e-9;  // the constant is free
}

CostModel::CostModel(const std::vector<std::vector<double>>& features, double ridge)
    : d_(features.empty() ? 0 : features[0].size()), ridge_(ridge), x_(features) {
  const auto n = static_cast<double>(x_.size());
  for (size_t f = 0; f < d_; ++f) {
    double mean = 0, square = 0;
    for (const auto& x : x_) mean += x[f] / n;
    for (const auto& x : x_) square += (x[f] - mean) * (x[f] - mean) / n;
    const double scale = square > 1e-18 ? 1 / std::sqrt(square) : 0;
    for (auto& x : x_) x[f] = (x[f] - mean) * scale;
  }
  for (auto& x : x_) x.push_back(1);
  ++d_;
  w_.assign(d_, 0);
  clear();
  factorise();
}

void CostModel::clear() {
  a_.assign(d_ * d_, 0);
  for (size_t f = 0; f < d_; ++f) a_[f * d_ + f] = f + 1 < d_ ? ridge_ : kConstantRidge;
}

void CostModel::add(size_t point, double y) { points_.push_back(point), y_.push_back(y); }

void CostModel::imagine(size_t point) {
  const auto& x = x_[point];
  for (size_t i = 0; i < d_; ++i)
    for (size_t j = 0; j <= i; ++j) a_[i * d_ + j] += x[i] * x[j];
  factorise();
}

// A = L Lᵀ, positive definite because λ > 0.
void CostModel::factorise() {
  factor_ = a_;
  for (size_t i = 0; i < d_; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = factor_[i * d_ + j];
      for (size_t k = 0; k < j; ++k) sum -= factor_[i * d_ + k] * factor_[j * d_ + k];
      factor_[i * d_ + j] = i == j ? std::sqrt(sum) : sum / factor_[j * d_ + j];
    }
  }
}

void CostModel::fit() {
  clear();
  mean_ = 0;
  for (const double y : y_) mean_ += y / static_cast<double>(y_.size());
  std::vector<double> b(d_, 0);
  for (size_t t = 0; t < y_.size(); ++t) {
    const auto& x = x_[points_[t]];
    for (size_t i = 0; i < d_; ++i) {
      b[i] += x[i] * (y_[t] - mean_);
      for (size_t j = 0; j <= i; ++j) a_[i * d_ + j] += x[i] * x[j];
    }
  }
  factorise();
  // L z = b, Lᵀ w = z.
  for (size_t i = 0; i < d_; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= factor_[i * d_ + k] * b[k];
    b[i] /= factor_[i * d_ + i];
  }
  for (size_t i = d_; i-- > 0;) {
    for (size_t k = i + 1; k < d_; ++k) b[i] -= factor_[k * d_ + i] * b[k];
    b[i] /= factor_[i * d_ + i];
  }
  w_ = b;
  double square = 0;
  for (size_t t = 0; t < y_.size(); ++t) square += std::pow(y_[t] - predict(points_[t]), 2);
  noise_ = y_.empty() ? 0 : std::sqrt(square / static_cast<double>(y_.size()));
}

double CostModel::predict(size_t point) const {
  double y = mean_;
  for (size_t f = 0; f < d_; ++f) y += w_[f] * x_[point][f];
  return y;
}

double CostModel::uncertainty(size_t point) const {
  std::vector<double> z = x_[point];
  double square = 0;
  for (size_t i = 0; i < d_; ++i) {
    for (size_t k = 0; k < i; ++k) z[i] -= factor_[i * d_ + k] * z[k];
    z[i] /= factor_[i * d_ + i];
    square += z[i] * z[i];
  }
  return std::sqrt(square);
}

}  // namespace tegula
