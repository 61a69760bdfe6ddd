// y = max(x, 0); -0 and NaN stay
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef relu_op = elementwise({
    .name = "relu",
    .formula = "y = max(x, 0); -0 and NaN stay",
    .types = "T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {select(gt(c.in[0], 0.0), c.grad[0], zeros_like(c.grad[0]))};
    },
    .tile = tile_unary<tile::Op::kRelu>,
    .reference = reference_with_ints<UnaryRef<[](auto x) { return scalar::relu(x); }>>,
    .samples = [] { return unary_samples(0.1, 2); },
});

}  // namespace tegula
