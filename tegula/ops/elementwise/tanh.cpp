// y = tanh x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef tanh_op = elementwise({
    .name = "tanh",
    .formula = "y = tanh x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * (1.0 - c.out[0] * c.out[0])};
    },
    .tile = tile_unary<tile::Op::kTanh>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::tanh(x); }>>,
});

}  // namespace tegula
