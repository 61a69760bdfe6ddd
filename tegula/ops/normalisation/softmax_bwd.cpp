// Gradient of softmax from its result: dx = y (dy - the sum of y dy), over the last dim.
#include "tegula/ops/common/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_row(a.in[0], [&](Index& i) {
      S along = S(0.0);
      for_each_in_row(a.in[0], i, [&](const Index& at, size_t) {
        along = scalar::fma(a.load_at(0, at), a.load_at(1, at), along);
      });
      for_each_in_row(a.in[0], i, [&](const Index& at, size_t) {
        a.store_at(0, a.load_at(0, at) * (a.load_at(1, at) - along), at);
      });
    });
  }
};

std::vector<Var> decompose(Builder&, const OpCall&, std::span<const Var> in) {
  const DType sums = accumulator(in[0].dtype());
  const Var y = cast(in[0], sums), dy = cast(in[1], sums);
  return {cast(y * (dy - reduce_sum(y * dy, {-1}, true)), in[0].dtype())};
}
}  // namespace

constinit const OpDef softmax_bwd_op = norm_op({
    .name = "softmax_bwd",
    .formula = "dx = y (dy - the sum of y dy over the last dim)",
    .dims = "y: ... d, dy: ... d -> ... d",
    .types = "F, F -> F",
    .flops = [](const OpCall& c) { return 4 * c.in[0].shape.numel(); },
    .decompose = decompose,
    .reference = reference_of<Ref>,
    .samples =
        [] {
          auto in = [](Shape s, DType t = DType::kF32) {
            return std::vector<SampleInput>{{{t, s}, 0, 1}, {{t, s}}};
          };
          auto misfit = in({4, 5});
          misfit[1].type.shape = {4, 6};
          return std::vector<Sample>{{"rows", in({2, 3, 5}), {}},
                                     {"one row", in({7}), {}},
                                     {"bf16", in({3, 5}, DType::kBF16), {}},
                                     {"misfit", misfit, {}, "dy has d=6, y has d=5"}};
        },
});

}  // namespace tegula
