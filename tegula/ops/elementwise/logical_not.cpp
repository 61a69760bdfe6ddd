// y = not x
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef logical_not_op = elementwise({
    .name = "logical_not",
    .formula = "y = not x",
    .types = "b -> b",
    .flops = per_element<0>,
    .tile = tile_unary<tile::Op::kLogicalNot>,
    .reference = reference_of<UnaryRef<[](auto x) {
      using S = decltype(x);
      return S(x == S(0.0) ? 1.0 : 0.0);
    }>>,
    .samples = [] { return unary_samples(0, 1, DType::kBool); },
});

}  // namespace tegula
