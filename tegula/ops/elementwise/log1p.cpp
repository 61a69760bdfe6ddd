// y = log(1 + x)
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef log1p_op = elementwise({
    .name = "log1p",
    .formula = "y = log(1 + x)",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] / (c.in[0] + 1.0)}; },
    .tile = tile_unary<tile::Op::kLog1p>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::log1p(x); }>>,
    .samples = [] { return unary_samples(-0.5, 2); },
});

}  // namespace tegula
