// y = the logarithm of x to base 10
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef log10_op = elementwise({
    .name = "log10",
    .formula = "y = the logarithm of x to base 10",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] / (c.in[0] * 2.302585092994046)};
    },
    .tile = tile_unary<tile::Op::kLog10>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::log10(x); }>>,
    .samples = [] { return unary_samples(0.5, 3); },
});

}  // namespace tegula
