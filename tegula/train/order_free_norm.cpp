#include "tegula/train/order_free_norm.h"

#include "tegula/ops/math.h"
#include "tegula/passes/order_free_sum.h"

namespace tegula {

Var order_free_norm(Builder& b, std::span<const Var> grads,
                    std::span<const std::string_view> scopes) {
  const OrderFreeSum squares = order_free_sum(b, grads, scopes, true);
  return sqrt(squares.sum) * squares.scale;
}

}  // namespace tegula
