// y = a + b
#include "tegula/ops/common/elementwise.h"

namespace tegula {

constinit const OpDef add_op = {
    .name = "add",
    .formula = "y = a + b",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types = "T, T -> T",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0], c.grad[0]};
    },
    .tile = tile_binary<tile::Op::kAdd>,
    .reference = reference_with_ints<BinaryRef<[](auto a, auto b) { return a + b; }>>,
    .samples = [] { return binary_samples(-2, 2); },
    .is_elementwise = true,
    .is_commutative = true,
};

}  // namespace tegula
