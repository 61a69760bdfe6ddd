// y = a - b floor(a / b), with the sign of b; integers: a where b = 0, as a = b q + y asks
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef remainder_op = elementwise({
    .name = "remainder",
    .formula =
        "y = a - b floor(a / b), with the sign of b; integers: a where b = 0, as a = b q + y asks",
    .types = "T, T -> T",
    .vjp = rest_vjp,
    .tile = tile_binary<tile::Op::kRemainder>,
    .reference = reference_of<
        ExactBinaryRef<[](auto a, auto b) { return scalar::remainder(a, b); },
                       [](DType, int64_t a, int64_t b) { return integer::remainder(a, b); }>>,
    .samples = [] { return division_samples(2.1, 2.4); },
});

}  // namespace tegula
