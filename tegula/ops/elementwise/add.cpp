// y = a + b
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef add_op = elementwise({
    .name = "add",
    .formula = "y = a + b",
    .types = "T, T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0], c.grad[0]};
    },
    .tile = tile_binary<tile::Op::kAdd>,
    .reference = reference_with_ints<BinaryRef<[](auto a, auto b) { return a + b; }>>,
    .is_commutative = true,
});

}  // namespace tegula
