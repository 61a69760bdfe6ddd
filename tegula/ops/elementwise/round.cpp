// y = the nearest integer, halves to the even one
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef round_op = {
    .name = "round",
    .formula = "y = the nearest integer, halves to the even one",
    .group = "elementwise",
    .dims = kUnaryDims,
    .types = "F -> F",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall&) -> Grads { return {Var()}; },
    .tile = tile_unary<tile::Op::kRound>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::round(x); }>>,
    .samples = [] { return unary_samples(0.1, 0.4); },
    .is_elementwise = true,
};

}  // namespace tegula
