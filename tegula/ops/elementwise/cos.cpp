// y = cos x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef cos_op = {
    .name = "cos",
    .formula = "y = cos x",
    .group = "elementwise",
    .dims = kUnaryDims,
    .types = "F -> F",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {-(c.grad[0] * sin(c.in[0]))}; },
    .tile = tile_unary<tile::Op::kCos>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::cos(x); }>>,
    .samples = [] { return unary_samples(-2, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
