// The k largest of the last dim, largest first, and their indices; the lower index among equals.
#include "tegula/ops/common/ranking.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const int64_t k = c.attrs->i("k");
  const Shape& x = c.shape(0);
  if (x.rank() == 0 || k < 0 || k > x[x.rank() - 1].bound())
    return invalid_argument(cat("top_k: k is ", k, ", x is ", c.in[0]));
  const NamedDim known[] = {{"k", k}};
  return solve_dims("top_k", "... n -> ... k, ... k", c.in, known);
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    rank_rows(a, true);
  }
};
}  // namespace

Ranked top_k(Var x, int64_t k, Loc loc) {
  const auto y = x.builder().emit_n(top_k_op, {{"k", k}}, std::span(&x, 1), {}, loc);
  return {y[0], y[1]};
}

constinit const OpDef top_k_op = {
    .name = "top_k",
    .formula = "y = the k largest of the last dim, largest first, and their indices",
    .group = "indexing",
    .dims_fn = dims,
    .types = "T -> T, i32",
    .attrs = {{"k", AttrKind::kInt, true, "how many"}},
    .split = {{"n", Combine::kNever}, {"k", Combine::kNever}},
    .vjp = ranked_vjp,
    .jvp = ranked_jvp,
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          return std::vector<Sample>{{"two of six", {{{f32, {2, 3, 6}}}}, {{"k", 2}}},
                                     {"all", {{{f32, {5}}}}, {{"k", 5}}},
                                     {"none", {{{f32, {2, 5}}}}, {{"k", 0}}},
                                     {"equals", {{{DType::kI32, {2, 9}}, 0, 2}}, {{"k", 4}}},
                                     {"too many", {{{f32, {2, 5}}}}, {{"k", 6}}, "k is 6"}};
        },
};

}  // namespace tegula
