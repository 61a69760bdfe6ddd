// y = a / b; integers truncate
#include "tegula/ops/elementwise.h"

namespace tegula {

constinit const OpDef div_op = {
    .name = "div",
    .formula = "y = a / b; integers truncate",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types = "T, T -> T",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] / c.in[1], -(c.grad[0] * c.out[0] / c.in[1])};
    },
    .tile = tile_binary<tile::Op::kDiv>,
    .reference = reference_of<BinaryRef<[](auto a, auto b) { return a / b; }>>,
    .samples = [] { return binary_samples(0.3, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
