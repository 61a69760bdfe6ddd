// y = (e^x - e^-x) / 2
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef sinh_op = elementwise({
    .name = "sinh",
    .formula = "y = (e^x - e^-x) / 2",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * cosh(c.in[0])}; },
    .tile = tile_unary<tile::Op::kSinh>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::sinh(x); }>>,
});

}  // namespace tegula
