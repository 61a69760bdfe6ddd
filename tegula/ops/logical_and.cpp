// y = a and b
#include "tegula/ops/elementwise.h"

namespace tegula {

constinit const OpDef logical_and_op = {
    .name = "logical_and",
    .formula = "y = a and b",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types = "b, b -> b",
    .tile = tile_binary<tile::Op::kLogicalAnd>,
    .reference = reference_of<PredicateRef<[](double a, double b) { return a != 0 && b != 0; }>>,
    .samples = [] { return binary_samples(0, 1, DType::kBool); },
    .is_elementwise = true,
    .is_commutative = true,
};

}  // namespace tegula
