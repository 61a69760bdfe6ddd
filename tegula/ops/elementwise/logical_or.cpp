// y = a or b
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef logical_or_op = elementwise({
    .name = "logical_or",
    .formula = "y = a or b",
    .types = "b, b -> b",
    .flops = per_element<0>,
    .tile = tile_binary<tile::Op::kLogicalOr>,
    .reference = reference_of<PredicateRef<[](auto a, auto b) {
      using S = decltype(a);
      return a != S(0.0) || b != S(0.0);
    }>>,
    .samples = [] { return binary_samples(0, 1, DType::kBool); },
    .is_commutative = true,
});

}  // namespace tegula
