// y = the logarithm of x to base 2
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef log2_op = elementwise({
    .name = "log2",
    .formula = "y = the logarithm of x to base 2",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] / (c.in[0] * 0.6931471805599453)};
    },
    .tile = tile_unary<tile::Op::kLog2>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::log2(x); }>>,
    .samples = [] { return unary_samples(0.5, 3); },
});

}  // namespace tegula
