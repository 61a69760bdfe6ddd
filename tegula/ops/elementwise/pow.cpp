// y = a^b; integers wrap, and a^-n is 0, or 1 or -1 where a is
#include "tegula/ops/common/elementary.h"

namespace tegula {

constinit const OpDef pow_op = elementwise({
    .name = "pow",
    .formula = "y = a^b; integers wrap, and a^-n is 0, or 1 or -1 where a is",
    .types = "T, T -> T",
    // Where b = 0, y is 1 for every a; where a = 0 and b >= 0, y is 0 (or 1) for every such b: the
    // slopes there are 0, and not the product of 0 with an infinity.
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var a = c.in[0], b = c.in[1], zero = zeros_like(c.grad[0]);
      const Var of_a = c.grad[0] * b * pow(a, b - 1.0), of_b = c.grad[0] * c.out[0] * log(a);
      return {select(eq(b, 0.0), zero, of_a),
              select(logical_and(eq(a, 0.0), ge(b, 0.0)), zero, of_b)};
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
});

}  // namespace tegula
