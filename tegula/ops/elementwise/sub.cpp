// y = a - b
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef sub_op = elementwise({
    .name = "sub",
    .formula = "y = a - b",
    .types = "T, T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0], -c.grad[0]};
    },
    .tile = tile_binary<tile::Op::kSub>,
    .reference = reference_with_ints<BinaryRef<[](auto a, auto b) { return a - b; }>>,
});

}  // namespace tegula
