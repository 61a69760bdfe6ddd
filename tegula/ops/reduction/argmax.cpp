// y = the index of the largest (or smallest) element of the last dim; the lowest among equals. A
// NaN is found before any number.
#include "tegula/ops/common/rows.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const bool smallest = a.attrs().flag("smallest");
    for_each_row(a.in[0], [&](Index& i) {
      int64_t best = 0;
      S top = S(0.0);
      for_each_in_row(a.in[0], i, [&](const Index& at, size_t j) {
        const S x = a.load_at(0, at);
        const bool wins = (smallest ? x < top : x > top) ||  //
                          (scalar::is_nan(x) && !scalar::is_nan(top));
        if (j == 0 || wins) top = x, best = static_cast<int64_t>(j);
      });
      a.store_i_at(0, best, i);
    });
  }
};
}  // namespace

namespace {
// Along the last dim, where a permuted view has put `dim`.
Var place(Var x, int dim, bool keep, bool smallest, Loc loc) {
  if (x.is_poison()) return x;
  Builder& b = x.builder();
  const int rank = x.rank();
  if (rank == 0 && (dim == 0 || dim == -1))
    return reshape(place(reshape(x, {1}, loc), 0, false, smallest, loc), {}, loc);
  if (dim < -rank || dim >= rank)
    return b.fail(invalid_argument(
        cat(smallest ? "argmin" : "argmax", ": dim ", dim, " of a value of ", rank, " dims"), loc));
  dim = dim < 0 ? dim + rank : dim;
  std::vector<int64_t> order;
  for (int d = 0; d < rank; ++d)
    if (d != dim) order.push_back(d);
  order.push_back(dim);
  const Attrs attrs = smallest ? Attrs{{"smallest", true}} : Attrs{};
  const Var y = b.emit(argmax_op, attrs, {permute(x, order, loc)}, loc);
  return keep ? unsqueeze(y, dim, loc) : y;
}
}  // namespace

Var argmax(Var x, int dim, bool keep, Loc loc) { return place(x, dim, keep, false, loc); }
Var argmin(Var x, int dim, bool keep, Loc loc) { return place(x, dim, keep, true, loc); }

constinit const OpDef argmax_op = {
    .name = "argmax",
    .formula =
        "y = the lowest index of the largest (smallest) element of the last dim; of a NaN if "
        "there is one",
    .group = "reduction",
    .dims = "... n -> ...",
    .types = "T -> i32",
    .attrs = {{"smallest", AttrKind::kBool, false, "the smallest instead"}},
    .split = {{"n", Combine::kNever}},
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const auto f32 = DType::kF32;
          return std::vector<Sample>{
              {"rows", {{{f32, {2, 3, 5}}}}, {}},
              {"equals", {{{f32, {2, 4}}, 0, 0, {1, 3, 3, 2, -1, -1, -1, -1}}}, {}},
              {"integers", {{{DType::kI32, {7}}, -50, 50}}, {}},
              {"many rows", {{{f32, {1200, 40}}}}, {}},
              {"smallest", {{{f32, {4, 9}}}}, {{"smallest", true}}},
              {"smallest of equals", {{{DType::kI64, {3, 8}}, -2, 2}}, {{"smallest", true}}},
              {"NaN first", {{{f32, {1, 4}}, 0, 0, {1, kNaN, 9, kNaN}, false}}, {}},
              {"scalar", {{{f32, {}}}}, {}, "at least 1 dims"}};
        },
};

}  // namespace tegula
