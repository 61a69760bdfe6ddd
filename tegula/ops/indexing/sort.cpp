// The last dim in order, stably, and where each element was.
#include "tegula/ops/common/ranking.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    rank_rows(a, a.attrs().flag("descending"));
  }
};
}  // namespace

Ranked sort(Var x, bool descending, Loc loc) {
  if (x.is_poison()) return {x, x};
  if (x.rank() == 0) {
    const Ranked one = sort(reshape(x, {1}, loc), descending, loc);
    return {reshape(one.values, {}, loc), reshape(one.indices, {}, loc)};
  }
  const auto y =
      x.builder().emit_n(sort_op, {{"descending", descending}}, std::span(&x, 1), {}, loc);
  return {y[0], y[1]};
}

constinit const OpDef sort_op = {
    .name = "sort",
    .formula = "y = the last dim in stable order, and the indices it had",
    .group = "indexing",
    .dims = "... n -> ... n, ... n",
    .types = "T -> T, i32",
    .attrs = {{"descending", AttrKind::kBool, false, "largest first"}},
    .split = {{"n", Combine::kNever}},
    .vjp = ranked_vjp,
    .jvp = ranked_jvp,
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          return std::vector<Sample>{
              {"rows", {{{f32, {2, 3, 6}}}}, {}},
              {"descending", {{{f32, {2, 7}}}}, {{"descending", true}}},
              {"equals", {{{DType::kI32, {9}}, 0, 3}}, {{"descending", true}}},
              {"scalar", {{{f32, {}}}}, {}, "at least 1 dims"}};
        },
};

}  // namespace tegula
