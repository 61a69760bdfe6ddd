// In Mode::kExact a step's sums of all elements of a value, as that of the loss over its tokens,
// get no order (order_free_sum.h): ranks then join three scalars and gather nothing. Changes bits;
// runs on a whole step alone. Gradients do not depend on such a sum.
#include "tegula/passes/order_free_sum.h"

#include <cmath>
#include <optional>

#include "tegula/base/range.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

constexpr double kLeastScale = 0x1p-126;  // so that its reciprocal is a normal number, too
constexpr int kLowBits = 30;

// Rows first, then what is left of them: rows run in parallel. A dim of one element is no sum.
template <class Reduce>
Var whole(Var x, Reduce&& reduce) {
  while (x.rank() > 0) {
    const int last = x.rank() - 1;
    x = x.dim(last) == Dim(1) ? squeeze(x, last) : reduce(x, last);
  }
  return x;
}
Var whole_sum(Var x) {
  return whole(x, [](Var y, int64_t dim) { return reduce_sum(y, {dim}); });
}
Var whole_max(Var x) {
  return whole(x, [](Var y, int64_t dim) { return reduce_max(y, {dim}); });
}

bool is_whole_sum(const Function& f, const Node& n) {
  if (n.op != &reduce_sum_op || n.phase != Phase::kForward) return false;
  const Type &x = f.type(n.inputs[0]), &y = f.type(n.output());
  return y.dtype == DType::kF32 && y.shape.rank() == 0 && x.shape.is_const() && x.shape.numel() > 1;
}

class OrderFreeSums {
 public:
  OrderFreeSums(Module& module, Function& f) : f_(f), rw_(module, f) {}
  bool has_work() const {
    return any_of(f_.nodes, [&](const Node& n) { return is_whole_sum(f_, n); });
  }
  Result<Function> run() {
    for (Node& n : f_.nodes) {
      if (!is_whole_sum(f_, n)) {
        rw_.take(n);
        continue;
      }
      rw_.builder().set_origin(n.origin);
      rw_.builder().set_phase(n.phase);
      const Var x[] = {rw_.at(n.inputs[0])};
      const OrderFreeSum s = order_free_sum(rw_.builder(), x, {}, false);
      rw_.bind(n.output(), s.sum * s.scale);
    }
    return rw_.finish();
  }

 private:
  Function& f_;
  Rewriter rw_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.mode != Mode::kExact || !options.is_step || options.is_region) return false;
  OrderFreeSums pass(module, f);
  return rewrite_if_any(pass, f);
}

}  // namespace

OrderFreeSum order_free_sum(Builder& b, std::span<const Var> values,
                            std::span<const std::string_view> scopes, bool of_squares) {
  const auto scope_of = [&](std::optional<Scope>& scope, size_t i) {
    if (i < scopes.size()) scope.emplace(b, scopes[i]);
  };
  Var most;
  int64_t n = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    std::optional<Scope> scope;
    scope_of(scope, i);
    const Var m = whole_max(abs(cast(values[i], DType::kF32)));
    most = most.valid() ? max(most, m) : m;
    n += values[i].shape().numel();
  }
  const Var scale = max(most * 0.25, kLeastScale), inverse = reciprocal(scale);
  const int w = 61 - std::ilogb(static_cast<double>(n)) - 1 - (of_squares ? 4 : 2);
  Var high, low;
  for (size_t i = 0; i < values.size(); ++i) {
    std::optional<Scope> scope;
    scope_of(scope, i);
    const Var t = cast(values[i], DType::kF32) * inverse;
    const Var y = (of_squares ? t * t : t) * std::ldexp(1.0, w);
    const Var whole = round(y), rest = round((y - whole) * std::ldexp(1.0, kLowBits));
    const Var hi = whole_sum(cast(whole, DType::kI64)), lo = whole_sum(cast(rest, DType::kI64));
    high = high.valid() ? high + hi : hi, low = low.valid() ? low + lo : lo;
  }
  const Var sum = cast(high, DType::kF32) + cast(low, DType::kF32) * std::ldexp(1.0, -kLowBits);
  return {scale, sum * std::ldexp(1.0, -w)};
}

extern const PassDef order_free_sum_pass = {
    .name = "order_free_sum",
    .doc = "in mode exact, sums of all elements as integers, which have no order",
    .sums = "in mode exact sums of all elements are exact, in no order",
    .phase = PassPhase::kOrder,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
