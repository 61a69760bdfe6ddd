// y = 2^x
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef exp2_op = elementwise({
    .name = "exp2",
    .formula = "y = 2^x",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * c.out[0] * 0.6931471805599453};
    },
    .tile = tile_unary<tile::Op::kExp2>,
    .reference = reference_of<UnaryRef<[](auto x) { return scalar::exp2(x); }>>,
    .samples = [] { return unary_samples(-3, 3); },
});

}  // namespace tegula
