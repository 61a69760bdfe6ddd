// y = e^x - 1
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef expm1_op = elementwise({
    .name = "expm1",
    .formula = "y = e^x - 1",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * (c.out[0] + 1.0)}; },
    .tile = tile_unary<tile::Op::kExpm1>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::expm1(x); }>>,
});

}  // namespace tegula
