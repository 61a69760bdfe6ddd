// y = sqrt(a^2 + b^2), without overflow; inf where a or b is
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef hypot_op = elementwise({
    .name = "hypot",
    .formula = "y = sqrt(a^2 + b^2), without overflow; inf where a or b is",
    .types = "F, F -> F",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * (c.in[0] / c.out[0]), c.grad[0] * (c.in[1] / c.out[0])};
    },
    .tile = tile_binary<tile::Op::kHypot>,
    .reference = reference_of<BinaryRef<[](auto a, auto b) { return scalar::hypot(a, b); }>>,
    .samples = [] { return binary_samples(0.3, 2); },
    .is_commutative = true,
});

}  // namespace tegula
