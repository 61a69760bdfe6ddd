// y = a 2^b, wrapped; 0 where b is negative or the width and more
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef shift_left_op = elementwise({
    .name = "shift_left",
    .formula = "y = a 2^b, wrapped; 0 where b is negative or the width and more",
    .dims = kBinaryDims,
    .types_fn = [](const OpCall& c) { return bit_types(c, false); },
    .tile = tile_binary<tile::Op::kShiftLeft>,
    .reference = reference_of<IntegerRef<integer::shift_left>>,
    .samples = shift_samples,
});

}  // namespace tegula
