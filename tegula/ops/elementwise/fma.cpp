// y = a b + c, rounded once. Multiply-add contracts only where a node says so.
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      a.store_at(0, scalar::fma(a.load_at(0, i), a.load_at(1, i), a.load_at(2, i)), i);
    });
  }
};
}  // namespace

constinit const OpDef fma_op = elementwise({
    .name = "fma",
    .formula = "y = a b + c, rounded once",
    .types = "F, F, F -> F",
    .flops = per_element<2>,
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {c.grad[0] * c.in[1], c.grad[0] * c.in[0], c.grad[0]};
    },
    .tile = [](tile::Builder& b, const OpCall&,
               std::span<const tile::Reg> in) { return b.fma(in[0], in[1], in[2]); },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {3, 5}}};
          return std::vector<Sample>{{"plain", {x, x, x}, {}}};
        },
});

}  // namespace tegula
