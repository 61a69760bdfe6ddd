// y = (a < b)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef lt_op = elementwise({
    .name = "lt",
    .formula = "y = (a < b)",
    .types = "T, T -> b",
    .flops = per_element<0>,
    .tile = tile_binary<tile::Op::kLt>,
    .reference = reference_with_ints<PredicateRef<[](auto a, auto b) { return a < b; }>>,
});

}  // namespace tegula
