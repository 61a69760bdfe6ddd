// y = (a <= b)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef le_op = {
    .name = "le",
    .formula = "y = (a <= b)",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types = "T, T -> b",
    .tile = tile_binary<tile::Op::kLe>,
    .reference = reference_with_ints<PredicateRef<[](auto a, auto b) { return a <= b; }>>,
    .samples = [] { return binary_samples(-2, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
