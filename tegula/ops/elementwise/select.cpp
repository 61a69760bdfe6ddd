// y = condition ? a : b.
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      const S x = a.load_at(1, i), y = a.load_at(2, i);
      a.store_at(0, a.load_i_at(0, i) ? x : y, i);
    });
  }
};
}  // namespace

constinit const OpDef select_op = elementwise({
    .name = "select",
    .formula = "y = condition ? a : b",
    .types = "b, T, T -> T",
    .flops = per_element<0>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Var zero = zeros_like(c.grad[0]);
      return {Var(), select(c.in[0], c.grad[0], zero), select(c.in[0], zero, c.grad[0])};
    },
    .tile = [](tile::Builder& b, const OpCall&,
               std::span<const tile::Reg> in) { return b.select(in[0], in[1], in[2]); },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          return std::vector<Sample>{
              {"plain",
               {{{DType::kBool, {3, 4}}, 0, 1}, {{DType::kF32, {3, 4}}}, {{DType::kF32, {3, 4}}}},
               {}},
              {"condition is a float",
               {{{DType::kF32, {3}}}, {{DType::kF32, {3}}}, {{DType::kF32, {3}}}},
               {},
               "expected bool"}};
        },
});

}  // namespace tegula
