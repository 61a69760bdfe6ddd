// y = log((1 + x) / (1 - x)) / 2; NaN beyond [-1, 1]
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef atanh_op = elementwise({
    .name = "atanh",
    .formula = "y = log((1 + x) / (1 - x)) / 2; NaN beyond [-1, 1]",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] / ((1.0 - c.in[0]) * (c.in[0] + 1.0))};
    },
    .tile = tile_unary<tile::Op::kAtanh>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::atanh(x); }>>,
    .samples = [] { return unary_samples(-0.8, 0.8); },
});

}  // namespace tegula
