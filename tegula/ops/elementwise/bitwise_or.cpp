// y = the bits set in a or b
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef bitwise_or_op = elementwise({
    .name = "bitwise_or",
    .formula = "y = the bits set in a or b",
    .dims = kBinaryDims,
    .types_fn = [](const OpCall& c) { return bit_types(c, true); },
    .tile = tile_binary<tile::Op::kBitOr>,
    .reference = reference_of<IntegerRef<[](DType, int64_t a, int64_t b) { return a | b; }>>,
    .samples = [] { return binary_samples(-100, 100, DType::kI32); },
    .is_commutative = true,
});

}  // namespace tegula
