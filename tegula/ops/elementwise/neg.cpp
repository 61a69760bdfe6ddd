// y = -x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef neg_op = elementwise({
    .name = "neg",
    .formula = "y = -x",
    .types = "T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {-c.grad[0]}; },
    .tile = tile_unary<tile::Op::kNeg>,
    .reference = reference_with_ints<UnaryRef<[](auto x) { return -x; }>>,
});

}  // namespace tegula
