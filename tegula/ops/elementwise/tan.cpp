// y = tan x
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef tan_op = elementwise({
    .name = "tan",
    .formula = "y = tan x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * (c.out[0] * c.out[0] + 1.0)};
    },
    .tile = tile_unary<tile::Op::kTan>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::tan(x); }>>,
    .samples = [] { return unary_samples(-1, 1); },
});

}  // namespace tegula
