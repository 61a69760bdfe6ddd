// y = (a = b)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef eq_op = elementwise({
    .name = "eq",
    .formula = "y = (a = b)",
    .types = "T, T -> b",
    .flops = per_element<0>,
    .tile = tile_binary<tile::Op::kEq>,
    .reference = reference_with_ints<PredicateRef<[](auto a, auto b) { return a == b; }>>,
    .is_commutative = true,
});

}  // namespace tegula
