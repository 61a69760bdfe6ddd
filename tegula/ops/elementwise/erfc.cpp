// y = 1 - erf(x), exact where erf is near 1
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef erfc_op = elementwise({
    .name = "erfc",
    .formula = "y = 1 - erf(x), exact where erf is near 1",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * -1.1283791670955126 * exp(-(c.in[0] * c.in[0]))};
    },
    .tile = tile_unary<tile::Op::kErfc>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::erfc(x); }>>,
});

}  // namespace tegula
