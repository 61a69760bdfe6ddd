// y = 1 / (1 + e^-x)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef sigmoid_op = elementwise({
    .name = "sigmoid",
    .formula = "y = 1 / (1 + e^-x)",
    .flops = per_element<4>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * c.out[0] * (1.0 - c.out[0])};
    },
    .tile = tile_unary<tile::Op::kSigmoid>,
    .reference = reference_of<UnaryRef<[](auto x) {
      using S = decltype(x);
      return S(1.0) / (S(1.0) + scalar::exp(-x));
    }>>,
});

}  // namespace tegula
