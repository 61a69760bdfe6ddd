#include "tegula/train/order_free_norm.h"

#include <cmath>

#include "tegula/ops/math.h"

namespace tegula {

namespace {

constexpr double kLeast = 1e-30;
constexpr int kLowBits = 30;

// Rows first, then what is left of them: rows run in parallel.
Var whole_sum(Var x) {
  while (x.rank() > 0) x = reduce_sum(x, {x.rank() - 1});
  return x;
}
Var whole_max(Var x) {
  while (x.rank() > 0) x = reduce_max(x, {x.rank() - 1});
  return x;
}

}  // namespace

Var order_free_norm(Builder& b, std::span<const Var> grads,
                    std::span<const std::string_view> scopes) {
  Var most;
  int64_t n = 1;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Scope scope(b, scopes[i]);
    const Var m = whole_max(abs(cast(grads[i], DType::kF32)));
    most = most.valid() ? max(most, m) : m;
    n += grads[i].shape().numel();
  }
  const Var scale = max(most, kLeast), inverse = reciprocal(scale);
  const int w = 61 - std::ilogb(static_cast<double>(n)) - 1;
  Var high, low;
  for (size_t i = 0; i < grads.size(); ++i) {
    const Scope scope(b, scopes[i]);
    const Var t = cast(grads[i], DType::kF32) * inverse, y = t * t * std::ldexp(1.0, w);
    const Var whole = round(y), rest = round((y - whole) * std::ldexp(1.0, kLowBits));
    const Var hi = whole_sum(cast(whole, DType::kI64)), lo = whole_sum(cast(rest, DType::kI64));
    high = high.valid() ? high + hi : hi, low = low.valid() ? low + lo : lo;
  }
  const Var sum = cast(high, DType::kF32) + cast(low, DType::kF32) * std::ldexp(1.0, -kLowBits);
  return sqrt(sum * std::ldexp(1.0, -w)) * scale;
}

}  // namespace tegula
