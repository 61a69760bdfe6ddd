// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the tanh form, as GPT-2 uses it.
// -0 at -inf, as in the limit.
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
constexpr double kC = 0.7978845608028654;  // sqrt(2/pi)
constexpr double kA = 0.044715;

// dy/dx = s + x (s - s s) 2 c (1 + 3 a x^2), s = sigmoid(2 c (x + a x^3)): one exponential, and no
// cancellation, since s - s s is rounded once. Multiply-adds where they can be: behind a product on
// a GPU every instruction counts.
Grads vjp(Builder& b, const VjpCall& c) {
  const Var x = c.in[0], xx = x * x;
  const auto along = [&](double slope) {
    return fma(xx, fill(b, slope, x.type()), fill(b, 2 * kC, x.type()));
  };
  const Var s = sigmoid(x * along(2 * kC * kA));
  return {c.grad[0] * fma(x * fma(-s, s, s), along(6 * kC * kA), s)};
}
}  // namespace

constinit const OpDef gelu_op = elementwise({
    .name = "gelu",
    .formula = "y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); -0 at -inf",
    .source = "Hendrycks and Gimpel 2016, section 2",
    .flops = per_element<8>,
    .vjp = vjp,
    .tile = tile_unary<tile::Op::kGelu>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::gelu(x); }>>,
    .samples = [] { return unary_samples(-3, 3); },
});

}  // namespace tegula
