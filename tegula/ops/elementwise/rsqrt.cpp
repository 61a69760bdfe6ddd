// y = 1 / sqrt(x)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef rsqrt_op = elementwise({
    .name = "rsqrt",
    .formula = "y = 1 / sqrt(x)",
    .flops = per_element<2>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * -0.5 * (c.out[0] * c.out[0] * c.out[0])};
    },
    .tile = tile_unary<tile::Op::kRsqrt>,
    .reference = reference_of<UnaryRef<[](auto x) {
      using S = decltype(x);
      return S(1.0) / scalar::sqrt(x);
    }>>,
    .samples = [] { return unary_samples(0.2, 3); },
});

}  // namespace tegula
