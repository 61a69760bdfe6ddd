// y = a / b. Integers truncate; a / 0 is the end of their range on a's side, 0 / 0 is 0. Of bools
// a.
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      const S x = a.load_at(0, i), y = a.load_at(1, i);
      if constexpr (std::is_same_v<S, Integer>) {
        a.store_at(0, Integer::of(divided_int(a.out[0].dtype, x.v, y.v)), i);
      } else {
        a.store_at(0, x / y, i);
      }
    });
  }
};
}  // namespace

constinit const OpDef div_op = elementwise({
    .name = "div",
    .formula = "y = a / b; integers truncate, and of b = 0 give the end of their range",
    .types = "T, T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] / c.in[1], -(c.grad[0] * c.out[0] / c.in[1])};
    },
    .tile =
        [](tile::Builder& b, const OpCall& c, std::span<const tile::Reg> in) {
          if (c.out[0].dtype == DType::kBool)
            return b.binary(tile::Op::kMul, in[0], in[0]);  // a: 1 / 0 is the greatest
          return b.binary(tile::Op::kDiv, in[0], in[1]);
        },
    .reference = reference_with_ints<Ref>,
    .samples = [] { return binary_samples(0.3, 2); },
});

}  // namespace tegula
