// y_i = x_0 + … + x_i along one dim; in reverse, y_i = x_i + … + x_n. One chain per line.
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const int64_t dim = c.attrs->i("dim");
  const Shape& x = c.shape(0);
  if (dim < 0 || dim >= x.rank())
    return invalid_argument(cat("cumsum: dim ", dim, " of ", c.in[0]));
  DimMap m = TEGULA_TRY(solve_dims("cumsum", "... -> ...", c.in));
  m.factors[static_cast<size_t>(dim)].whole = true;
  m.finish();
  return m;
}

struct Ref {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const auto dim = static_cast<size_t>(a.attrs().i("dim"));
    const bool reverse = a.attrs().flag("reverse");
    const int64_t n = a.in[0].shape[dim];
    const auto shape = shape_of(a.in[0]);
    Index lines{};
    std::copy(shape.begin(), shape.end(), lines.begin());
    lines[dim] = 1;
    for_each_index(std::span<const int64_t>(lines).first(shape.size()), [&](const Index& line) {
      S sum = S(0.0);
      for (int64_t j = 0; j < n; ++j) {
        Index i = line;
        i[dim] = reverse ? n - 1 - j : j;
        sum += a.load_at(0, i);
        a.store_at(0, sum, i);
      }
    });
  }
};
}  // namespace

Var cumsum(Var x, int dim, bool reverse, Loc loc) {
  if (x.rank() == 0 && (dim == 0 || dim == -1)) return x;
  if (dim < 0) dim += x.rank();
  return x.builder().emit(cumsum_op, {{"dim", int64_t{dim}}, {"reverse", reverse}}, {x}, loc);
}

constinit const OpDef cumsum_op = {
    .name = "cumsum",
    .formula = "y_i = the sum of x_j over j <= i (in reverse: j >= i) along one dim",
    .group = "reduction",
    .dims_fn = dims,
    .types = "T -> T",
    .attrs = {{"dim", AttrKind::kInt, true, "which dim"},
              {"reverse", AttrKind::kBool, false, "sum from the end"}},
    .flops = [](const OpCall& c) { return c.in[0].shape.numel(); },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      return {cumsum(c.grad[0], static_cast<int>(c.attrs().i("dim")), !c.attrs().flag("reverse"))};
    },
    .reference = reference_with_ints<Ref>,
    .samples =
        [] {
          const SampleInput x = {{DType::kF32, {2, 4, 3}}};
          auto along = [](int64_t dim, bool reverse) {
            return Attrs{{"dim", dim}, {"reverse", reverse}};
          };
          return std::vector<Sample>{{"middle", {x}, along(1, false)},
                                     {"last, reversed", {x}, along(2, true)},
                                     {"integers", {{{DType::kI32, {6}}, -9, 9}}, along(0, false)},
                                     {"many lines", {{{DType::kF32, {5, 3, 70}}}}, along(1, false)},
                                     {"nothing", {{{DType::kF32, {2, 0}}}}, along(1, false)},
                                     {"past the rank", {x}, along(3, false), "dim 3"}};
        },
    .is_linear = true,
};

}  // namespace tegula
