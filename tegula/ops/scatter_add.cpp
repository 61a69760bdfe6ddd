// x[b.., p.., n, q..] = the sum of y[b.., p.., i.., q..] over all i with ids[b.., i..] = n, in
// ascending order of i: the adjoint of gather. Ids out of range are left out.
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {
Result<DimMap> dims(const OpCall& c) {
  const auto& size = c.attrs->dims("size");
  const Shape &y = c.shape(0), &ids = c.shape(1);
  const Gathering g(*c.attrs, ids.rank());
  const int rank = y.rank() - ids.rank() + g.batch + 1;
  if (size.size() != 1 || g.dim < 0 || g.batch < 0 || g.batch > ids.rank() || g.dim >= rank)
    return invalid_argument(
        cat("scatter_add: dim ", g.dim, ", batch ", g.batch, " of ", y, " and ids ", ids));
  Shape x;
  for (int d = 0; d < rank; ++d)
    x.push_back(d == g.dim ? size[0] : y[d < g.dim ? d : d - 1 + ids.rank() - g.batch]);
  return gather_dims(c, x, ids, true);
}

Attrs localize(const OpCall& c, const DimMap& m, int factor, int64_t lo, int64_t hi) {
  Attrs a = *c.attrs;
  if (factor == m.find("n")) a.set("size", std::vector<Dim>{hi - lo});
  return a;
}

std::vector<Sample> samples() {
  auto ids = [](Shape s, std::vector<double> v) {
    return SampleInput{{DType::kI32, s}, 0, 2, std::move(v), false};
  };
  auto at = [](int64_t dim, int64_t batch, int64_t size) {
    return Attrs{{"dim", dim}, {"batch", batch}, {"size", std::vector<Dim>{size}}};
  };
  const SampleInput rows = {{DType::kF32, {4, 3}}};
  std::vector<Sample> s = {
      {"rows", {rows, ids({4}, {2, 0, 2, 2})}, at(0, 0, 5)},
      {"columns", {rows, ids({3}, {1, 1, 0})}, at(1, 0, 2)},
      {"two id dims", {{{DType::kF32, {2, 2, 3}}}, ids({2, 2}, {1, 0, 1, 1})}, at(0, 0, 2)},
      {"along the last", {rows, ids({4, 3}, {0, 0, 1, 3, 2, 1, 0, 0, 0, 1, 2, 3})}, at(1, 1, 4)},
      {"none", {{{DType::kF32, {0, 3}}}, ids({0}, {})}, at(0, 0, 4)},
      {"integers", {{{DType::kI32, {3}}, -9, 9}, ids({3}, {1, 0, 1})}, at(0, 0, 2)},
      {"out of range", {rows, ids({4}, {5, 0, -1, 0})}, at(0, 0, 5)},
      {"misfit", {rows, ids({3}, {0, 1, 0})}, at(0, 0, 5), "expected [3,3]"}};
  return s;
}
}  // namespace

Var scatter_add(Var y, Var ids, int dim, Dim size, int batch, Loc loc) {
  if (dim < 0) dim += y.rank() - ids.rank() + batch + 1;
  return y.builder().emit(
      scatter_add_op,
      {{"dim", int64_t{dim}}, {"batch", int64_t{batch}}, {"size", std::vector<Dim>{size}}},
      {y, ids}, loc);
}

constinit const OpDef scatter_add_op = {
    .name = "scatter_add",
    .formula = "x[b.., p.., n, q..] = the sum of y[b.., p.., i.., q..] over ids[b.., i..] = n",
    .group = "indexing",
    .dims_fn = dims,
    .types = "T, i -> T",
    .attrs = {{"dim", AttrKind::kInt, true, "the indexed dim of x"},
              {"batch", AttrKind::kInt, false, "leading dims that x and ids share"},
              {"size", AttrKind::kDims, true, "x's extent there"}},
    .flops = [](const OpCall& c) { return c.in[0].shape.numel(); },
    .vjp = [](Builder&, const VjpCall& c) -> Grads {
      const Gathering g(c.attrs(), c.in[1].rank());
      return {gather(c.grad[0], c.in[1], g.dim, g.batch), Var()};
    },
    .jvp = [](Builder& b, const JvpCall& c) -> Grads {
      return {b.emit(scatter_add_op, c.attrs(), {c.tangent[0], c.in[1]})};
    },
    .reference = reference_of<ScatterAddRef>,
    .samples = samples,
    .localize = localize,
};

}  // namespace tegula
