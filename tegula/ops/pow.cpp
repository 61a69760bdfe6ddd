// y = a^b; integers wrap, and a^-n is 0, or 1 or -1 where a is
#include "tegula/ops/elementary.h"

namespace tegula {

constinit const OpDef pow_op = {
    .name = "pow",
    .formula = "y = a^b; integers wrap, and a^-n is 0, or 1 or -1 where a is",
    .group = "elementwise",
    .dims = kBinaryDims,
    .types = "T, T -> T",
    .flops = per_element<1>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * c.in[1] * pow(c.in[0], c.in[1] - 1.0),
              c.grad[0] * c.out[0] * log(c.in[0])};
    },
    .tile = tile_binary<tile::Op::kPow>,
    .reference = reference_of<
        ExactBinaryRef<[](auto a, auto b) { return scalar::pow(a, b); },
                       [](DType t, int64_t a, int64_t b) { return integer::pow(t, a, b); }>>,
    .samples =
        [] {
          std::vector<Sample> s = binary_samples(0.5, 2);
          for (const DType t : {DType::kI64, DType::kI32, DType::kI8})
            s.push_back({cat(t), {{{t, {60}}, -4, 4}, {{t, {60}}, -2, 9}}, {}});
          return s;
        },
    .is_elementwise = true,
};

}  // namespace tegula
