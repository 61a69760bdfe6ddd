// y = how many elements of the last dim of s, which ascends, are less than x (right: not greater):
// where x would be inserted. NaN counts as greater than any number.
#include "tegula/ops/common/rows.h"
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const bool right = a.attrs().flag("right"), floats = is_float(a.in[0].dtype);
    const TensorRef &s = a.in[0], &x = a.in[1];
    const auto n = static_cast<size_t>(s.shape[s.rank - 1]);
    std::vector<S> row(n);
    std::vector<int64_t> whole(n);
    // The order of floats, with NaN last.
    auto less = [](S p, S q) { return p < q || (scalar::is_nan(q) && !scalar::is_nan(p)); };
    for_each_row(s, [&](Index& i) {
      for_each_in_row(s, i, [&](const Index& at, size_t j) {
        if (floats) {
          row[j] = a.load_at(0, at);
        } else {
          whole[j] = a.load_i_at(0, at);
        }
      });
      for_each_in_row(x, i, [&](const Index& at, size_t) {
        int64_t y = 0;
        if (floats) {
          const S v = a.load_at(1, at);
          for (const S& e : row) y += right ? !less(v, e) : less(e, v);
        } else {
          const int64_t v = a.load_i_at(1, at);
          for (const int64_t e : whole) y += right ? e <= v : e < v;
        }
        a.store_i_at(0, y, at);
      });
    });
  }
};
}  // namespace

Var searchsorted(Var sorted, Var values, bool right, Loc loc) {
  Builder& b = builder_of({&values, &sorted});
  if (values.is_poison() || sorted.is_poison())
    return b.emit(searchsorted_op, {}, {sorted, values}, loc);
  if (values.rank() == 0)
    return reshape(searchsorted(sorted, reshape(values, {1}, loc), right, loc), {}, loc);
  if (sorted.rank() == 1 && values.rank() > 1) {
    Shape s = values.shape();
    s[s.rank() - 1] = sorted.dim(0);
    sorted = broadcast(sorted, s, loc);
  }
  return b.emit(searchsorted_op, {{"right", right}}, {sorted, values}, loc);
}

constinit const OpDef searchsorted_op = {
    .name = "searchsorted",
    .formula = "y = how many s of the ascending last dim are less than x (right: not greater)",
    .group = "indexing",
    .dims = "... n, ... m -> ... m",
    .types = "T, T -> i32",
    .attrs = {{"right", AttrKind::kBool, false, "count equals, too"}},
    .split = {{"n", Combine::kNever}},
    .reference = reference_of<Ref>,
    .samples =
        [] {
          const SampleInput s = {{DType::kF32, {2, 5}}, 0, 0, {-1, 0, 0, 2, 3, -2, -1, 0, 1, kNaN}},
                            x = {{DType::kF32, {2, 4}}, 0, 0, {0, -5, 9, 2.5, 0.5, -1, kNaN, 1}};
          return std::vector<Sample>{
              {"left", {s, x}, {}},
              {"right", {s, x}, {{"right", true}}},
              {"integers",
               {{{DType::kI64, {6}}, 0, 0, {-3, -3, 0, 4, 4, 9}}, {{DType::kI64, {9}}, -5, 10}},
               {{"right", true}}},
              {"many values",
               {{{DType::kF32, {5}}, 0, 0, {-0.5, -0.25, 0, 0.5, 0.75}}, {{DType::kF32, {3500}}}},
               {}},
              {"in nothing", {{{DType::kF32, {2, 0}}}, {{DType::kF32, {2, 3}}}}, {}},
              {"of nothing", {{{DType::kF32, {2, 3}}}, {{DType::kF32, {2, 0}}}}, {}},
              {"rows differ", {s, {{DType::kF32, {3, 4}}}}, {}, "searchsorted"}};
        },
};

}  // namespace tegula
