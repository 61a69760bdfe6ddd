// y = the larger of a and b; NaN wins; at a tie the gradient goes to a
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef max_op = elementwise({
    .name = "max",
    .formula = "y = the larger of a and b; NaN wins; at a tie the gradient goes to a",
    .types = "T, T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var wins = ge(c.in[0], c.in[1]);
      const Var zero = zeros_like(c.grad[0]);
      return {select(wins, c.grad[0], zero), select(wins, zero, c.grad[0])};
    },
    .tile = tile_binary<tile::Op::kMax>,
    .reference = reference_with_ints<BinaryRef<[](auto a, auto b) { return scalar::max(a, b); }>>,
});

}  // namespace tegula
