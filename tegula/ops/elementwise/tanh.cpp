// y = tanh x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef tanh_op = {
    .name = "tanh",
    .formula = "y = tanh x",
    .group = "elementwise",
    .dims = kUnaryDims,
    .types = "F -> F",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * (1.0 - c.out[0] * c.out[0])};
    },
    .tile = tile_unary<tile::Op::kTanh>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::tanh(x); }>>,
    .samples = [] { return unary_samples(-2, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
