// y = floor(a / 2^b); where b is negative or the width and more: 0, or -1 for a < 0
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef shift_right_op = elementwise({
    .name = "shift_right",
    .formula = "y = floor(a / 2^b); where b is negative or the width and more: 0, or -1 for a < 0",
    .dims = kBinaryDims,
    .types_fn = [](const OpCall& c) { return bit_types(c, false); },
    .tile = tile_binary<tile::Op::kShiftRight>,
    .reference = reference_of<IntegerRef<integer::shift_right>>,
    .samples = shift_samples,
});

}  // namespace tegula
