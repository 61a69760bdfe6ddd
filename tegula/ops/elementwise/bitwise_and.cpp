// y = the bits set in both a and b
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef bitwise_and_op = elementwise({
    .name = "bitwise_and",
    .formula = "y = the bits set in both a and b",
    .dims = kBinaryDims,
    .types_fn = [](const OpCall& c) { return bit_types(c, true); },
    .tile = tile_binary<tile::Op::kBitAnd>,
    .reference = reference_of<IntegerRef<[](DType, int64_t a, int64_t b) { return a & b; }>>,
    .samples = [] { return binary_samples(-100, 100, DType::kI32); },
    .is_commutative = true,
});

}  // namespace tegula
