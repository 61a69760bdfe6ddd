// y = ln x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef log_op = elementwise({
    .name = "log",
    .formula = "y = ln x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] / c.in[0]}; },
    .tile = tile_unary<tile::Op::kLog>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::log(x); }>>,
    .samples = [] { return unary_samples(0.2, 3); },
});

}  // namespace tegula
