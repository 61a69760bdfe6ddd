// y = |a| with the sign of b, of -0 too; the gradient is 0 where a is
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef copysign_op = elementwise({
    .name = "copysign",
    .formula = "y = |a| with the sign of b, of -0 too; the gradient is 0 where a is",
    .types = "F, F -> F",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var one = fill(c.in[0].builder(), 1, c.in[0].type());
      return {c.grad[0] * sign(c.in[0]) * copysign(one, c.in[1]), Var()};
    },
    .tile = tile_binary<tile::Op::kCopysign>,
    .reference = reference_of<BinaryRef<[](auto a, auto b) { return scalar::copysign(a, b); }>>,
    .samples = [] { return binary_samples(0.3, 2); },
});

}  // namespace tegula
