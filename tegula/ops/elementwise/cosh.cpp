// y = (e^x + e^-x) / 2
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef cosh_op = elementwise({
    .name = "cosh",
    .formula = "y = (e^x + e^-x) / 2",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * sinh(c.in[0])}; },
    .tile = tile_unary<tile::Op::kCosh>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::cosh(x); }>>,
});

}  // namespace tegula
