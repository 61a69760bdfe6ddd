// The largest (smallest) element so far along one dim, and where it is: the latest among equals, as
// in torch; a NaN stays, at the index of the latest one.
#include "tegula/ops/common/lines.h"
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {
struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const bool smallest = a.attrs().flag("smallest"), floats = is_float(a.in[0].dtype);
    const auto dim = static_cast<size_t>(a.attrs().i("dim"));
    S top = S(0.0);
    int64_t whole = 0, at = 0;
    for_each_in_lines(a, [&](const Index& i, int64_t j) {
      bool wins = false;
      if (floats) {
        const S x = a.load_at(0, i);
        wins = j == 0 || scalar::is_nan(x) ||
               (!scalar::is_nan(top) && (smallest ? x <= top : x >= top));
        if (wins) top = x;
      } else {
        const int64_t x = a.load_i_at(0, i);
        wins = j == 0 || (smallest ? x <= whole : x >= whole);
        if (wins) whole = x;
      }
      if (wins) at = i[dim];
      if (floats) {
        a.store_at(0, top, i);
      } else {
        a.store_i_at(0, whole, i);
      }
      a.store_i_at(1, at, i);
    });
  }
};

Running running(Var x, int dim, bool reverse, bool smallest, Loc loc) {
  if (x.rank() == 0 && (dim == 0 || dim == -1))
    return {x, constant(x.builder(), 0, DType::kI32, loc)};
  if (dim < 0) dim += x.rank();
  const auto y = x.builder().emit_n(
      cummax_op, {{"dim", int64_t{dim}}, {"reverse", reverse}, {"smallest", smallest}},
      std::span(&x, 1), {}, loc);
  return {y[0], y[1]};
}
}  // namespace

Running cummax(Var x, int dim, bool reverse, Loc loc) {
  return running(x, dim, reverse, false, loc);
}
Running cummin(Var x, int dim, bool reverse, Loc loc) {
  return running(x, dim, reverse, true, loc);
}

constinit const OpDef cummax_op = {
    .name = "cummax",
    .formula = "y_i = the largest (smallest) of x_j over j <= i along one dim, and the last such j",
    .group = "reduction",
    .dims_fn = [](const OpCall& c) { return line_dims(c, "... -> ..., ..."); },
    .types = "T -> T, i32",
    .attrs = {kLineDim, kLineReverse, {"smallest", AttrKind::kBool, false, "the smallest instead"}},
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const auto dim = static_cast<int>(c.attrs().i("dim"));
      const Var g = transpose(c.grad[0], dim, -1), at = transpose(c.out[1], dim, -1);
      const int last = g.rank() - 1;
      return {transpose(scatter_add(g, at, last, g.dim(last), last), dim, -1)};
    },
    .jvp = [](Builder&, const JvpCall& c) -> Grads {
      const auto dim = static_cast<int>(c.attrs().i("dim"));
      const Var t = transpose(c.tangent[0], dim, -1), at = transpose(c.out[1], dim, -1);
      const int last = t.rank() - 1;
      return {transpose(gather(t, at, last, last), dim, -1), Var()};
    },
    .reference = reference_of<Ref>,
    .samples =
        [] {
          std::vector<Sample> s = line_samples(1, -1, 1);
          s[0].attrs.set("smallest", true);
          s.push_back({"NaN and equals",
                       {{{DType::kF32, {8}}, 0, 0, {1, 3, 3, kNaN, 5, kNaN, 7, 1}, false}},
                       {{"dim", int64_t{0}}}});
          return s;
        },
};

}  // namespace tegula
