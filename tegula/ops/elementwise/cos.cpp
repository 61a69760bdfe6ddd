// y = cos x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef cos_op = elementwise({
    .name = "cos",
    .formula = "y = cos x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {-(c.grad[0] * sin(c.in[0]))}; },
    .tile = tile_unary<tile::Op::kCos>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::cos(x); }>>,
});

}  // namespace tegula
