// y = the smaller of a and b; NaN wins; at a tie the gradient goes to a
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef min_op = elementwise({
    .name = "min",
    .formula = "y = the smaller of a and b; NaN wins; at a tie the gradient goes to a",
    .types = "T, T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var wins = le(c.in[0], c.in[1]);
      const Var zero = zeros_like(c.grad[0]);
      return {select(wins, c.grad[0], zero), select(wins, zero, c.grad[0])};
    },
    .tile = tile_binary<tile::Op::kMin>,
    .reference = reference_with_ints<BinaryRef<[](auto a, auto b) { return scalar::min(a, b); }>>,
});

}  // namespace tegula
