// y = x / (1 + e^-x); -0 at -inf, as in the limit
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef silu_op = elementwise({
    .name = "silu",
    .formula = "y = x / (1 + e^-x); -0 at -inf",
    .flops = per_element<4>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {[&] {
        const Var s = sigmoid(c.in[0]);
        return c.grad[0] * fma(c.out[0], 1.0 - s, s);
      }()};
    },
    .tile = tile_unary<tile::Op::kSilu>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::silu(x); }>>,
});

}  // namespace tegula
