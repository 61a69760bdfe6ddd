// y = a - b trunc(a / b), with the sign of a; integers: a where b = 0, as a = b q + y asks
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef fmod_op = elementwise({
    .name = "fmod",
    .formula =
        "y = a - b trunc(a / b), with the sign of a; integers: a where b = 0, as a = b q + y asks",
    .types = "T, T -> T",
    .vjp = rest_vjp,
    .tile = tile_binary<tile::Op::kFmod>,
    .reference = reference_of<
        ExactBinaryRef<[](auto a, auto b) { return scalar::fmod(a, b); },
                       [](DType, int64_t a, int64_t b) { return integer::fmod(a, b); }>>,
    .samples = [] { return division_samples(2.1, 2.4); },
});

}  // namespace tegula
