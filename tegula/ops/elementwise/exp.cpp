// y = e^x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef exp_op = elementwise({
    .name = "exp",
    .formula = "y = e^x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * c.out[0]}; },
    .tile = tile_unary<tile::Op::kExp>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::exp(x); }>>,
});

}  // namespace tegula
