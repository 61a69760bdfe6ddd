// y = x without its fraction
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef trunc_op = elementwise({
    .name = "trunc",
    .formula = "y = x without its fraction",
    .vjp = [](Builder&, const VjpCall&) -> Grads { return {Var()}; },
    .tile = tile_unary<tile::Op::kTrunc>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::trunc(x); }>>,
    .samples = [] { return unary_samples(0.1, 0.9); },
});

}  // namespace tegula
