// Sums that have no order, so that ranks may hold any shares of what is summed.
//
//   t_i = x_i / s,  s = max(2^−126, max_i |x_i| / 4),  y_i = 2^w t_i (of squares: 2^w t_i²)
//   hi = Σ round(y_i),  lo = Σ round(2^30 (y_i − round(y_i)))        in 64-bit integers
//   Σ x_i = s · 2^−w (hi + 2^−30 lo),  Σ x_i² = s² · 2^−w (hi + 2^−30 lo)
//
// w is the largest for which hi cannot overflow: |y_i| · n ≤ 2^61 for n elements in all, of which
// |t_i| ≤ 4. s is a quarter of the largest, whose own reciprocal may be too small for f32, or the
// least normal number, whose t_i is 1. Largest elements and integer sums are the same in any order;
// what is rounded is each t_i (to f32), each lo (by at most 2^−31) and the end. So the error is
// below 2^−21 of Σ |x_i| (of Σ x_i²) for normal numbers and n ≤ 2^30: less than a sum in f32 has.
// Something infinite or not a number makes the sum so. Costs a second reading of the values.
// [Demmel and Nguyen 2013, section 3: prerounding against the largest element]
#pragma once

#include <span>
#include <string_view>

#include "tegula/ir/builder.h"

namespace tegula {

struct OrderFreeSum {
  Var scale;  // s
  Var sum;    // Σ t_i, or Σ t_i²; both are f32 scalars
};
// The sum of all elements of all values; scopes: where in the model each of these stands, or none.
OrderFreeSum order_free_sum(Builder& b, std::span<const Var> values,
                            std::span<const std::string_view> scopes, bool of_squares);

}  // namespace tegula
