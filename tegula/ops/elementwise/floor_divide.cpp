// y = floor(a / b); integers by 0: the largest, the smallest for a < 0, 0 for 0
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef floor_divide_op = elementwise({
    .name = "floor_divide",
    .formula = "y = floor(a / b); integers by 0: the largest, the smallest for a < 0, 0 for 0",
    .types = "T, T -> T",
    .vjp = [](Builder&, const VjpCall&) -> Grads {
      return {Var(), Var()};
    },
    .tile = tile_binary<tile::Op::kFloorDivide>,
    .reference =
        reference_of<ExactBinaryRef<[](auto a, auto b) { return scalar::floor_divide(a, b); },
                                    [](DType t, int64_t a, int64_t b) {
                                      return integer::floor_divide(t, a, b);
                                    }>>,
    .samples = [] { return division_samples(2.1, 2.4); },
});

}  // namespace tegula
