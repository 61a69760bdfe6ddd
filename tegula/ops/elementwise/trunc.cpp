// y = x without its fraction
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef trunc_op = {
    .name = "trunc",
    .formula = "y = x without its fraction",
    .group = "elementwise",
    .dims = kUnaryDims,
    .types = "F -> F",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall&) -> Grads { return {Var()}; },
    .tile = tile_unary<tile::Op::kTrunc>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::trunc(x); }>>,
    .samples = [] { return unary_samples(0.1, 0.9); },
    .is_elementwise = true,
};

}  // namespace tegula
