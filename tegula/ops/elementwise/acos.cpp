// y = acos x, in [0, pi]; NaN beyond [-1, 1]
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef acos_op = elementwise({
    .name = "acos",
    .formula = "y = acos x, in [0, pi]; NaN beyond [-1, 1]",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {-(c.grad[0] * rsqrt((1.0 - c.in[0]) * (c.in[0] + 1.0)))};
    },
    .tile = tile_unary<tile::Op::kAcos>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::acos(x); }>>,
    .samples = [] { return unary_samples(-0.8, 0.8); },
});

}  // namespace tegula
