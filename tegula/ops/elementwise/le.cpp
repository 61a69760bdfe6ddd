// y = (a <= b)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef le_op = elementwise({
    .name = "le",
    .formula = "y = (a <= b)",
    .types = "T, T -> b",
    .flops = per_element<0>,
    .tile = tile_binary<tile::Op::kLe>,
    .reference = reference_with_ints<PredicateRef<[](auto a, auto b) { return a <= b; }>>,
});

}  // namespace tegula
