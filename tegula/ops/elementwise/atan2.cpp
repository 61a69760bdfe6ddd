// y = the angle of the point (b, a), in [-pi, pi]
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef atan2_op = elementwise({
    .name = "atan2",
    .formula = "y = the angle of the point (b, a), in [-pi, pi]",
    .types = "F, F -> F",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var r2 = c.in[0] * c.in[0] + c.in[1] * c.in[1];
      return {c.grad[0] * c.in[1] / r2, -(c.grad[0] * c.in[0] / r2)};
    },
    .tile = tile_binary<tile::Op::kAtan2>,
    .reference = reference_of<BinaryRef<[](auto a, auto b) { return scalar::atan2(a, b); }>>,
    .samples = [] { return binary_samples(0.3, 2); },
});

}  // namespace tegula
