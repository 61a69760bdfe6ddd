// y = the index of the largest element of the last dim; the lowest among equals. A NaN counts as
// larger than any number.
#include "tegula/ops/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    for_each_row(a.in[0], [&](Index& i) {
      int64_t best = 0;
      S top = S(0.0);
      for_each_in_row(a.in[0], i, [&](const Index& at, size_t j) {
        const S x = a.load_at(0, at);
        const bool wins = x > top || (scalar::is_nan(x) && !scalar::is_nan(top));
        if (j == 0 || wins) top = x, best = static_cast<int64_t>(j);
      });
      a.store_i_at(0, best, i);
    });
  }
};
}  // namespace

Var argmax(Var x, Loc loc) { return x.builder().emit(argmax_op, {}, {x}, loc); }

constinit const OpDef argmax_op = {
    .name = "argmax",
    .formula = "y = the lowest index of the largest element of the last dim",
    .group = "reduction",
    .dims = "... n -> ...",
    .types = "T -> i32",
    .split = {{"n", Combine::kNever}},
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          return std::vector<Sample>{
              {"rows", {{{f32, {2, 3, 5}}}}, {}},
              {"equals", {{{f32, {2, 4}}, 0, 0, {1, 3, 3, 2, -1, -1, -1, -1}}}, {}},
              {"integers", {{{DType::kI32, {7}}, -50, 50}}, {}},
              {"scalar", {{{f32, {}}}}, {}, "at least 1 dims"}};
        },
};

}  // namespace tegula
