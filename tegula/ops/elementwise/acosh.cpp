// y = log(x + sqrt(x^2 - 1)); NaN below 1
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef acosh_op = elementwise({
    .name = "acosh",
    .formula = "y = log(x + sqrt(x^2 - 1)); NaN below 1",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * rsqrt((c.in[0] - 1.0) * (c.in[0] + 1.0))};
    },
    .tile = tile_unary<tile::Op::kAcosh>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::acosh(x); }>>,
    .samples = [] { return unary_samples(1.5, 4); },
});

}  // namespace tegula
