// y = e^x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef exp_op = {
    .name = "exp",
    .formula = "y = e^x",
    .group = "elementwise",
    .dims = kUnaryDims,
    .types = "F -> F",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * c.out[0]}; },
    .tile = tile_unary<tile::Op::kExp>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::exp(x); }>>,
    .samples = [] { return unary_samples(-2, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
