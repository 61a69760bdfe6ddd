// y = asin x, in [-pi/2, pi/2]; NaN beyond [-1, 1]
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef asin_op = elementwise({
    .name = "asin",
    .formula = "y = asin x, in [-pi/2, pi/2]; NaN beyond [-1, 1]",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * rsqrt((1.0 - c.in[0]) * (c.in[0] + 1.0))};
    },
    .tile = tile_unary<tile::Op::kAsin>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::asin(x); }>>,
    .samples = [] { return unary_samples(-0.8, 0.8); },
});

}  // namespace tegula
