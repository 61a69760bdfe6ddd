// y = (a > b)
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef gt_op = {
    .name = "gt",
    .formula = "y = (a > b)",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types = "T, T -> b",
    .tile = tile_binary<tile::Op::kGt>,
    .reference = reference_with_ints<PredicateRef<[](auto a, auto b) { return b < a; }>>,
    .samples = [] { return binary_samples(-2, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
