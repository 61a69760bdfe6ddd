// y = a^b
#include "tegula/ops/elementwise.h"

namespace tegula {

constinit const OpDef pow_op = {
    .name = "pow",
    .formula = "y = a^b",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types = "F, F -> F",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * c.in[1] * pow(c.in[0], c.in[1] - 1.0),
              c.grad[0] * c.out[0] * log(c.in[0])};
    },
    .tile = tile_binary<tile::Op::kPow>,
    .reference = reference_of<BinaryRef<[](auto a, auto b) { return scalar::pow(a, b); }>>,
    .samples = [] { return binary_samples(0.5, 2); },
    .is_elementwise = true,
};

}  // namespace tegula
