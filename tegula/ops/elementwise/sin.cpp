// y = sin x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef sin_op = elementwise({
    .name = "sin",
    .formula = "y = sin x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * cos(c.in[0])}; },
    .tile = tile_unary<tile::Op::kSin>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::sin(x); }>>,
});

}  // namespace tegula
