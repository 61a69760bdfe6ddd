// The norm of all gradients by a sum that has no order (passes/order_free_sum.h), so that ranks may
// hold any shares of them:
//
//   ‖g‖₂ = s · sqrt(Σ (g_i / s)²),  s = max(2^−126, max_i |g_i| / 4)
//
// The error is below 2^−21 relative, of all normal numbers. A gradient that is infinite or not a
// number makes the norm so. Costs a second reading of the gradients.
#pragma once

#include <span>
#include <string_view>

#include "tegula/ir/builder.h"

namespace tegula {

// scopes: where in the model each gradient stands. An f32 scalar.
Var order_free_norm(Builder& b, std::span<const Var> grads,
                    std::span<const std::string_view> scopes);

}  // namespace tegula
