// y = sqrt(x)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef sqrt_op = elementwise({
    .name = "sqrt",
    .formula = "y = sqrt(x)",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * 0.5 / c.out[0]}; },
    .tile = tile_unary<tile::Op::kSqrt>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::sqrt(x); }>>,
    .samples = [] { return unary_samples(0.2, 3); },
});

}  // namespace tegula
