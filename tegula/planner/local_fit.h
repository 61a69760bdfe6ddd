// A value at a point from values at others: locally weighted linear regression with a ridge.
//
//   minimise Σ w_i·(y_i − a − b·(x_i − x))² + κ·|b|²,   w_i = exp(−|x_i − x|²/2) + 1e-6
// and the value is a. κ = 0.03 holds slopes to some 0.3 where values scatter by 5 %. Few points or
// none nearby: their weighted mean. [Cleveland 1979; Hoerl and Kennard 1970]
#pragma once

#include <span>
#include <vector>

namespace tegula::planner {

struct FitPoint {
  std::span<const double> x;  // as many numbers as the query has
  double y = 0;
};
// Points must not be empty.
double local_fit(std::span<const FitPoint> points, std::span<const double> at);

}  // namespace tegula::planner
