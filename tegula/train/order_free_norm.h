// The norm of all gradients by sums that have no order, so that ranks may hold any shares of them.
//
//   s = max(1e-30, max_i |g_i|),  t_i = (g_i / s)²,  y_i = 2^w t_i
//   hi = Σ round(y_i),  lo = Σ round(2^30 (y_i − round(y_i)))        in 64-bit integers
//   ‖g‖₂ = s · sqrt(2^−w (hi + 2^−30 lo))
//
// w is the largest for which hi cannot overflow: 2^w · n ≤ 2^61 for n elements in all. Largest
// elements and integer sums are the same in any order; what is rounded is each t_i (to f32), each
// lo (by at most 2^−31) and the end. So the error is below 2^−21 relative: less than a sum in f32
// has. A gradient that is infinite or not a number makes the norm so. Costs a second reading of
// the gradients. [Demmel and Nguyen 2013, section 3: prerounding against the largest element]
#pragma once

#include <span>
#include <string_view>

#include "tegula/ir/builder.h"

namespace tegula {

// scopes: where in the model each gradient stands. An f32 scalar.
Var order_free_norm(Builder& b, std::span<const Var> grads,
                    std::span<const std::string_view> scopes);

}  // namespace tegula
