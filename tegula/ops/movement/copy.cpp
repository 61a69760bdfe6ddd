// y = x, contiguous in row-major order: what a consumer that cannot read strides asks for.
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_index(shape_of(a.out[0]), [&](const Index& i) { a.store_at(0, a.load_at(0, i), i); });
  }
};
}  // namespace

constinit const OpDef copy_op = {
    .name = "copy",
    .formula = "y = x, contiguous",
    .group = "movement",
    .dims = kUnaryDims,
    .types = "T -> T",
    .vjp = [](Builder&, const VjpCall& c) -> Grads { return {c.grad[0]}; },
    .reference = reference_with_ints<Ref>,
    .samples = [] { return unary_samples(-2, 2); },
    .is_linear = true,
    .aliases = {{0, 0}},
};

}  // namespace tegula
