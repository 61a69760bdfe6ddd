// y = the largest integer not above x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef floor_op = elementwise({
    .name = "floor",
    .formula = "y = the largest integer not above x",
    .vjp = [](Builder&, const VjpCall&) -> Grads { return {Var()}; },
    .tile = tile_unary<tile::Op::kFloor>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::floor(x); }>>,
    .samples = [] { return unary_samples(0.1, 0.9); },
});

}  // namespace tegula
