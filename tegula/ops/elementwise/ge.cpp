// y = (a >= b)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef ge_op = elementwise({
    .name = "ge",
    .formula = "y = (a >= b)",
    .types = "T, T -> b",
    .flops = per_element<0>,
    .tile = tile_binary<tile::Op::kGe>,
    .reference = reference_with_ints<PredicateRef<[](auto a, auto b) { return b <= a; }>>,
});

}  // namespace tegula
