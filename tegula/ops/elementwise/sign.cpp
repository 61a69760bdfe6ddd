// y = 1, 0 or -1: the sign of x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef sign_op = elementwise({
    .name = "sign",
    .formula = "y = 1, 0 or -1: the sign of x",
    .types = "T -> T",
    .flops = per_element<0>,
    .vjp = [](Builder&, const VjpCall&) -> Grads { return {Var()}; },
    .tile = tile_unary<tile::Op::kSign>,
    .reference = reference_with_ints<UnaryRef<[](auto x) {
      using S = decltype(x);
      return S(S(0) < x ? 1.0 : x < S(0) ? -1.0 : 0.0);
    }>>,
    .samples = [] { return unary_samples(0.1, 2); },
});

}  // namespace tegula
