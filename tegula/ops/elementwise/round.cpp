// y = the nearest integer, halves to the even one
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef round_op = elementwise({
    .name = "round",
    .formula = "y = the nearest integer, halves to the even one",
    .vjp = [](Builder&, const VjpCall&) -> Grads { return {Var()}; },
    .tile = tile_unary<tile::Op::kRound>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::round(x); }>>,
    .samples = [] { return unary_samples(0.1, 0.4); },
});

}  // namespace tegula
