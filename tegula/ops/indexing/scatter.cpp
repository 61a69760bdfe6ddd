// x with y[b.., p.., i.., q..] put into x[b.., p.., n, q..] for all i with ids[b.., i..] = n, in
// ascending order of i: set (the last one stays), added, multiplied, or the largest or smallest.
// Ids out of range are left out. Without x: into zeros (mul: ones; max and min: the least and
// greatest value); with mode "add" that is the adjoint of gather.

#include "tegula/base/algorithm.h"
#include "tegula/ops/common/gathering.h"

namespace tegula {

namespace {
ScatterMode mode_of(const Attrs& a) {
  for (size_t k = 0; k < kScatterModes.size(); ++k)
    if (kScatterModes[k] == a.str("mode")) return static_cast<ScatterMode>(k);
  return ScatterMode::kAdd;  // check_mode has refused any other
}

Status check_mode(const OpCall& c) {
  for (std::string_view name : kScatterModes)
    if (name == c.attrs->str("mode")) return {};
  return invalid_argument(
      cat("scatter: mode is \"", c.attrs->str("mode"), "\", must be set, add, max, min or mul"));
}

Result<DimMap> dims(const OpCall& c) {
  TEGULA_TRY(check_mode(c));
  const auto& size = c.attrs->dims("size");
  const Shape &y = c.shape(0), &ids = c.shape(1);
  const auto batch = c.attrs->get_or<int64_t>("batch", 0);
  const int64_t rank = y.rank() - ids.rank() + std::clamp<int64_t>(batch, 0, ids.rank()) + 1;
  TEGULA_TRY(check_gathering(c, static_cast<int>(rank)));
  if (size.size() != 1 || rank > kMaxRank)
    return invalid_argument(cat("scatter: from ", y, " and ids ", ids, " a tensor of rank ", rank,
                                " with ", size.size(), " sizes of dim: at most 8 and one"));
  const Gathering g(*c.attrs, ids.rank());
  Shape x;
  for (int d = 0; d < rank; ++d)
    x.push_back(d == g.dim ? size[0] : y[d < g.dim ? d : d - 1 + ids.rank() - g.batch]);
  DimMap m = TEGULA_TRY(gather_dims(c, x, ids, true));
  const bool has_x = c.in.size() > 2;
  if (has_x) {
    if (!(c.shape(2) == x))
      return invalid_argument(cat("scatter: x is ", c.in[2], ", from y and ids expected ", x));
    m.operands.push_back(m.results[0]);
  }
  // How parts that each saw some of i.. combine; sums that each began with x do not.
  const ScatterMode mode = mode_of(*c.attrs);
  const Combine combine = mode == ScatterMode::kMax             ? Combine::kMax
                          : mode == ScatterMode::kMin           ? Combine::kMin
                          : mode == ScatterMode::kAdd && !has_x ? Combine::kSum
                                                                : Combine::kNever;
  for (Factor& f : m.factors)
    if (f.name[0] == 'i') f.whole = combine == Combine::kNever;
  m.finish(combine);
  return m;
}

template <class S>
S start_of(ScatterMode mode, DType t) {
  return mode == ScatterMode::kMul   ? S(1.0)
         : mode == ScatterMode::kMax ? least<S>(t)
         : mode == ScatterMode::kMin ? greatest<S>(t)
                                     : S(0.0);
}

struct Ref {
  template <class S>
  static S combined(ScatterMode mode, S x, S y) {
    switch (mode) {
      case ScatterMode::kSet:
        return y;
      case ScatterMode::kAdd:
        return x + y;
      case ScatterMode::kMax:
        return scalar::max(x, y);
      case ScatterMode::kMin:
        return scalar::min(x, y);
      case ScatterMode::kMul:
        return x * y;
    }
    return x;
  }
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const Gathering g(a.attrs(), a.in[1].rank);
    const ScatterMode mode = mode_of(a.attrs());
    const TensorRef& x = a.out[0];
    // And what is thrown away.
    std::vector<S> all(static_cast<size_t>(x.numel()) + 1, start_of<S>(mode, x.dtype));
    size_t at = 0;
    if (a.in.size() > 2)
      for_each_index(shape_of(x), [&](const Index& i) { all[at++] = a.load_at(2, i); });
    for_each_index(shape_of(a.in[0]), [&](const Index& y) {
      const int64_t id = a.load_i_at(1, g.ids_index(y));
      const bool inside = id >= 0 && id < x.shape[g.dim];
      const auto to = inside ? static_cast<size_t>(a.row_major_at(x, g.x_index(y, id, x.rank)))
                             : all.size() - 1;
      all[to] = combined(mode, all[to], a.load_at(0, y));
    });
    at = 0;
    for_each_index(shape_of(x), [&](const Index& i) { a.store_at(0, all[at++], i); });
  }
};

// d result / d x, elementwise, and d result[ids] / d y; invalid: 1.
struct Slopes {
  Var x, y;
};
Slopes slopes(std::span<const Var> in, Var out, const Attrs& a) {
  const Gathering g(a, in[1].rank());
  const ScatterMode mode = mode_of(a);
  const Var ids = in[1], y = in[0];
  const bool has_x = in.size() > 2;
  const auto at_ids = [&](Var v) { return gather(v, ids, g.dim, g.batch); };
  const auto sum = [&](Var v) { return scatter_add(v, ids, g.dim, out.dim(g.dim), g.batch); };
  const auto as_float = [&](Var v) { return cast(v, y.dtype()); };
  switch (mode) {
    case ScatterMode::kAdd:
      return {};
    case ScatterMode::kSet: {
      // Which i came last to each place; 0: none did.
      Builder& b = y.builder();
      Var order = fill(b, 1, {DType::kI64, y.shape()});
      int64_t weight = 1;
      for (int d = g.end(); d-- > g.begin(); weight *= y.dim(d).bound())
        order = order + iota(b, y.shape(), d, DType::kI64) * static_cast<double>(weight);
      const Var last = scatter(fill(b, 0, {DType::kI64, out.shape()}), ids, order, g.dim,
                               ScatterMode::kSet, g.batch);
      return {as_float(eq(last, 0.0)), as_float(eq(at_ids(last), order))};
    }
    case ScatterMode::kMax:
    case ScatterMode::kMin: {
      // Equals share.
      const Var is_y = as_float(eq(y, at_ids(out)));
      Var count = sum(is_y), is_x;
      if (has_x) is_x = as_float(eq(in[2], out)), count = count + is_x;
      count = max(count, 1.0);
      return {has_x ? is_x / count : is_x, is_y / max(at_ids(count), 1.0)};
    }
    case ScatterMode::kMul: {
      // The product of the others: of all but zeros by the factor; of those where it is the one 0.
      const Var one = fill(y.builder(), 1, y.type());
      const Var y_is_0 = eq(y, 0.0);
      const Var y_rest = select(y_is_0, one, y);
      Var zeros = sum(as_float(y_is_0)), x_is_0, x_rest = fill(y.builder(), 1, out.type());
      if (has_x) {
        x_is_0 = eq(in[2], 0.0), zeros = zeros + as_float(x_is_0);
        x_rest = select(x_is_0, x_rest, in[2]);
      }
      const Var product = scatter(x_rest, ids, y_rest, g.dim, ScatterMode::kMul, g.batch);
      const auto others = [](Var rest, Var is_0, Var all, Var n) {
        const Var none = zeros_like(all);
        return select(is_0, select(eq(n, 1.0), all, none), select(eq(n, 0.0), all / rest, none));
      };
      return {has_x ? others(x_rest, x_is_0, product, zeros) : Var(),
              others(y_rest, y_is_0, at_ids(product), at_ids(zeros))};
    }
  }
  return {};
}
Var scaled(Var v, Var slope) { return slope.valid() ? v * slope : v; }

Grads vjp(Builder&, const VjpCall& c) {
  const Gathering g(c.attrs(), c.in[1].rank());
  const Slopes s = slopes(c.in, c.out[0], c.attrs());
  Grads out = {scaled(gather(c.grad[0], c.in[1], g.dim, g.batch), s.y), Var()};
  if (c.in.size() > 2) out.push_back(scaled(c.grad[0], s.x));
  return out;
}

Grads jvp(Builder&, const JvpCall& c) {
  const Gathering g(c.attrs(), c.in[1].rank());
  const Slopes s = slopes(c.in, c.out[0], c.attrs());
  Var t;
  if (c.tangent[0].valid())
    t = scatter_add(scaled(c.tangent[0], s.y), c.in[1], g.dim, c.out[0].dim(g.dim), g.batch);
  if (c.in.size() > 2 && c.tangent[2].valid()) {
    const Var of_x = scaled(c.tangent[2], s.x);
    t = t.valid() ? t + of_x : of_x;
  }
  return {t};
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
  auto at = [](int64_t dim, int64_t batch, int64_t size, std::string_view mode = "add") {
    return Attrs{{"dim", dim},
                 {"batch", batch},
                 {"size", std::vector<Dim>{size}},
                 {"mode", std::string(mode)}};
  };
  const SampleInput rows = {{DType::kF32, {4, 3}}};
  const SampleInput along_ids = ids({4, 3}, {0, 0, 1, 3, 2, 1, 0, 0, 0, 1, 2, 3});
  std::vector<Sample> s = {
      {"rows", {rows, ids({4}, {2, 0, 2, 2})}, at(0, 0, 5)},
      {"columns", {rows, ids({3}, {1, 1, 0})}, at(1, 0, 2)},
      {"two id dims", {{{DType::kF32, {2, 2, 3}}}, ids({2, 2}, {1, 0, 1, 1})}, at(0, 0, 2)},
      {"along the last", {rows, along_ids}, at(1, 1, 4)},
      {"none", {{{DType::kF32, {0, 3}}}, ids({0}, {})}, at(0, 0, 4)},
      {"integers", {{{DType::kI32, {3}}, -9, 9}, ids({3}, {1, 0, 1})}, at(0, 0, 2)},
      {"out of range", {rows, ids({4}, {5, 0, -1, 0})}, at(0, 0, 5)},
      {"misfit", {rows, ids({3}, {0, 1, 0})}, at(0, 0, 5), "expected [3,3]"},
      {"no mode", {rows, ids({4}, {2, 0, 2, 2})}, at(0, 0, 5, "sub"), "must be set, add"},
      {"x misfits",
       {rows, ids({4}, {2, 0, 2, 2}), {{DType::kF32, {5, 2}}}},
       at(0, 0, 5),
       "expected [5,3]"}};
  for (std::string_view mode : kScatterModes) {
    const SampleInput x = {{DType::kF32, {5, 3}}};
    s.push_back({cat(mode, " into x"), {rows, ids({4}, {2, 0, 2, 2}), x}, at(0, 0, 5, mode)});
    s.push_back({cat(mode, " along the last"),
                 {rows, along_ids, {{DType::kF32, {4, 4}}}},
                 at(1, 1, 4, mode)});
    s.push_back(
        {cat(mode, " out of range"), {rows, ids({4}, {5, 0, -1, 0}), x}, at(0, 0, 5, mode)});
    for (const DType t : {DType::kI32, DType::kI64})
      s.push_back({cat(mode, " of ", t),
                   {{{t, {6}}, -9, 9}, ids({6}, {1, 0, 1, 3, 1, 0}), {{t, {4}}, -9, 9}},
                   at(0, 0, 4, mode)});
    s.push_back({cat(mode, " into nothing"),
                 {{{DType::kF32, {6}}}, ids({6}, {1, 0, 1, 3, 1, 0})},
                 at(0, 0, 4, mode)});
    // Without a second derivative there: nothing but the place of a 0 tells what its others are.
    s.push_back({cat(mode, " at zeros"),
                 {{{DType::kF32, {6}}, 0, 0, {0, 2, 3, 0, 0, -1}},
                  ids({6}, {1, 0, 1, 3, 3, 2}),
                  {{DType::kF32, {4}}, 0, 0, {4, 5, 0, 7}}},
                 at(0, 0, 4, mode)});
    s.back().smooth = mode == "set" || mode == "add";
  }
  return s;
}
}  // namespace

Var scatter_add(Var y, Var ids, int dim, Dim size, int batch, Loc loc) {
  if (dim < 0) dim += y.rank() - ids.rank() + batch + 1;
  return y.builder().emit(scatter_op,
                          {{"dim", int64_t{dim}},
                           {"batch", int64_t{batch}},
                           {"size", std::vector<Dim>{size}},
                           {"mode", "add"}},
                          {y, ids}, loc);
}

Var scatter(Var x, Var ids, Var y, int dim, ScatterMode mode, int batch, Loc loc) {
  const auto how = static_cast<size_t>(mode);
  if (how >= kScatterModes.size())
    return x.builder().fail(invalid_argument(cat("scatter: there is no mode ", how), loc));
  if (dim < 0) dim += x.rank();
  if (dim < 0 || dim >= x.rank())
    return x.builder().fail(invalid_argument(cat("scatter: dim ", dim, " of ", x.type()), loc));
  return x.builder().emit(scatter_op,
                          {{"dim", int64_t{dim}},
                           {"batch", int64_t{batch}},
                           {"size", std::vector<Dim>{x.dim(dim)}},
                           {"mode", std::string(kScatterModes[how])}},
                          {y, ids, x}, loc);
}

constinit const OpDef scatter_op = {
    .name = "scatter",
    .formula =
        "x[b.., p.., n, q..] = x combined with all y[b.., p.., i.., q..] of ids[b.., i..] = n",
    .group = "indexing",
    .dims_fn = dims,
    .types = "T, i, T? -> T",
    .attrs = {{"dim", AttrKind::kInt, true, "the indexed dim of x"},
              {"batch", AttrKind::kInt, false, "leading dims that x and ids share"},
              {"size", AttrKind::kDims, true, "x's extent there"},
              {"mode", AttrKind::kString, true, "set, add, max, min or mul"}},
    .flops =
        [](const OpCall& c) {
          return mode_of(*c.attrs) == ScatterMode::kSet ? 0 : c.in[0].shape.numel();
        },
    .vjp = vjp,
    .jvp = jvp,
    .reference = reference_with_ints<Ref>,
    .samples = samples,
    .localize = localize,
    .aliases = {{2, 0}},
};

}  // namespace tegula
