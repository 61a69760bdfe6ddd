// y = 1 / x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef reciprocal_op = elementwise({
    .name = "reciprocal",
    .formula = "y = 1 / x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {-(c.grad[0] * c.out[0] * c.out[0])}; },
    .tile = tile_unary<tile::Op::kReciprocal>,
    .reference = reference_of<UnaryRef<[](auto x) {
      using S = decltype(x);
      return S(1.0) / x;
    }>>,
    .samples = [] { return unary_samples(0.3, 3); },
});

}  // namespace tegula
