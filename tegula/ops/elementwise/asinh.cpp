// y = log(x + sqrt(x^2 + 1))
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef asinh_op = elementwise({
    .name = "asinh",
    .formula = "y = log(x + sqrt(x^2 + 1))",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * rsqrt(c.in[0] * c.in[0] + 1.0)};
    },
    .tile = tile_unary<tile::Op::kAsinh>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::asinh(x); }>>,
    .samples = [] { return unary_samples(-3, 3); },
});

}  // namespace tegula
