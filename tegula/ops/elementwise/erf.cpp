// y = 2/sqrt(pi) * integral of e^(-t^2) from 0 to x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef erf_op = elementwise({
    .name = "erf",
    .formula = "y = 2/sqrt(pi) * integral of e^(-t^2) from 0 to x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * 1.1283791670955126 * exp(-(c.in[0] * c.in[0]))};
    },
    .tile = tile_unary<tile::Op::kErf>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::erf(x); }>>,
});

}  // namespace tegula
