// y = |x|
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef abs_op = elementwise({
    .name = "abs",
    .formula = "y = |x|",
    .types = "T -> T",
    .flops = per_element<2>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0] * sign(c.in[0])}; },
    .tile = tile_unary<tile::Op::kAbs>,
    .reference = reference_with_ints<UnaryRef<[](auto x) { return scalar::abs(x); }>>,
    .samples = [] { return unary_samples(0.1, 2); },
});

}  // namespace tegula
