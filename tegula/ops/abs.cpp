// y = |x|
#include "tegula/ops/elementwise.h"

namespace tegula {

constinit const OpDef abs_op = {
    .name = "abs",
    .formula = "y = |x|",
    .group = "elementwise",
    .dims = kUnaryDims,
    .types = "T -> T",
    .flops = per_element<2>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * sign(c.in[0])}; },
    .tile = tile_unary<tile::Op::kAbs>,
    .reference = reference_of<UnaryRef<[](auto x) {
      using S = decltype(x);
      const S y = scalar::max(x, -x);
      return y == S(0.0) ? S(0.0) : y;  // of equals max gives the second: -0 here
    }>>,
    .samples = [] { return unary_samples(0.1, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
