// y = atan x, in [-pi/2, pi/2]
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef atan_op = elementwise({
    .name = "atan",
    .formula = "y = atan x, in [-pi/2, pi/2]",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] / (c.in[0] * c.in[0] + 1.0)};
    },
    .tile = tile_unary<tile::Op::kAtan>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::atan(x); }>>,
    .samples = [] { return unary_samples(-3, 3); },
});

}  // namespace tegula
