#include "tegula/planner/local_fit.h"

#include <cmath>
#include <utility>

#include "tegula/base/algorithm.h"

namespace tegula::planner {

namespace {

constexpr double kRidge = 0.03, kLeastWeight = 1e-6;

// Gaussian elimination with partial pivoting; the matrix is positive definite.
std::vector<double> solve(std::vector<std::vector<double>> a, std::vector<double> b) {
  const size_t n = b.size();
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < n; ++r)
      if (std::fabs(a[r][c]) > std::fabs(a[pivot][c])) pivot = r;
    std::swap(a[c], a[pivot]), std::swap(b[c], b[pivot]);
    for (size_t r = c + 1; r < n; ++r) {
      const double factor = a[r][c] / a[c][c];
      for (size_t k = c; k < n; ++k) a[r][k] -= factor * a[c][k];
      b[r] -= factor * b[c];
    }
  }
  for (size_t c = n; c-- > 0;) {
    for (size_t k = c + 1; k < n; ++k) b[c] -= a[c][k] * b[k];
    b[c] /= a[c][c];
  }
  return b;
}

}  // namespace

double local_fit(std::span<const FitPoint> points, std::span<const double> at) {
  const size_t n = at.size() + 1;
  std::vector<std::vector<double>> a(n, std::vector<double>(n, 0));
  std::vector<double> b(n, 0), row(n, 1);
  for (const FitPoint& p : points) {
    double square = 0;
    for (size_t i = 0; i + 1 < n; ++i) {
      row[i + 1] = p.x[i] - at[i];
      square += row[i + 1] * row[i + 1];
    }
    const double weight = std::exp(-square / 2) + kLeastWeight;
    for (size_t i = 0; i < n; ++i) {
      b[i] += weight * row[i] * p.y;
      for (size_t k = 0; k < n; ++k) a[i][k] += weight * row[i] * row[k];
    }
  }
  // Where all points are far, the ridge is as small as their weights.
  const double ridge = kRidge * std::min(1.0, a[0][0]);
  for (size_t i = 1; i < n; ++i) a[i][i] += ridge;
  return solve(std::move(a), std::move(b))[0];
}

}  // namespace tegula::planner
