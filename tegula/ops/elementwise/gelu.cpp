// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the tanh form, as GPT-2 uses it.
// -0 at -inf, as in the limit.
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
constexpr double kC = 0.7978845608028654;  // sqrt(2/pi)
constexpr double kA = 0.044715;

// dy/dx = s + x s (1 - s) 2 c (1 + 3 a x^2), s = sigmoid(2 c (x + a x^3)): one exponential, and no
// cancellation where s is small.
Grads vjp(Builder&, const VjpCall& c) {
  const Var x = c.in[0];
  const Var xx = x * x;
  const Var s = sigmoid(x * (xx * (2 * kC * kA) + 2 * kC));
  const Var slope = x * (s * (1.0 - s)) * (xx * (6 * kC * kA) + 2 * kC);
  return {c.grad[0] * (s + slope)};
}
}  // namespace

constinit const OpDef gelu_op = {
    .name = "gelu",
    .formula = "y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); -0 at -inf",
    .source = "Hendrycks and Gimpel 2016, section 2",
    .group = "elementwise",
    .dims = kUnaryDims,
    .types = "F -> F",
    .flops = per_element<8>,
    .vjp = vjp,
    .tile = tile_unary<tile::Op::kGelu>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::gelu(x); }>>,
    .samples = [] { return unary_samples(-3, 3); },
    .is_elementwise = true,
};

}  // namespace tegula
