#include "tegula/ops/math.h"

#include <optional>

#include "tegula/base/algorithm.h"
#include "tegula/base/amounts.h"
#include "tegula/base/integer.h"
#include "tegula/base/saturating.h"
#include "tegula/base/sizes.h"
#include "tegula/ops/common/normal_dims.h"
#include "tegula/ops/table.h"

namespace tegula {

namespace {

// The NumPy result shape of two shapes, or an error at `loc`.
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  Shape out;
  const int rank = std::max(a.rank(), b.rank());
  for (int i = 0; i < rank; ++i) {
    const int ia = i - (rank - a.rank());
    const int ib = i - (rank - b.rank());
    const Dim da = ia < 0 ? Dim(1) : a[ia];
    const Dim db = ib < 0 ? Dim(1) : b[ib];
    if (!(da == db) && !(da == Dim(1)) && !(db == Dim(1)))
      return invalid_argument(
          cat("shapes ", a, " and ", b, " do not broadcast: dim ", i, " is ", da, " and ", db));
    out.push_back(da == Dim(1) ? db : da);
  }
  return out;
}

// The shape with its one size of -1, if there is one, made to hold x's elements.
Result<Shape> complete(const Shape& x, Shape target) {
  int open = -1;
  for (int d = 0; d < target.rank(); ++d) {
    if (!(target[d] == Dim(-1))) continue;
    if (open >= 0)
      return invalid_argument(cat("reshape: two sizes of ", target, " are -1, one may be"));
    open = d;
  }
  if (open < 0) return target;
  // The extents that x has and the target does not: symbolic sizes cancel, constants divide.
  std::vector<Dim> symbols;
  int64_t have = 1, given = 1;
  for (const Dim& d : x)
    if (d.is_const()) {
      have *= d.bound();
    } else {
      symbols.push_back(d);
    }
  for (int d = 0; d < target.rank(); ++d) {
    if (d == open) continue;
    if (target[d].is_const()) {
      given = saturating_mul(given, target[d].bound());
      continue;
    }
    const auto same = std::find(symbols.begin(), symbols.end(), target[d]);
    if (same == symbols.end()) return invalid_argument(cat("reshape: ", x, " has no ", target[d]));
    symbols.erase(same);
  }
  if (given <= 0 || have % given != 0 || symbols.size() > 1)
    return invalid_argument(cat("reshape: -1 in ", target, " has no size that fits ", x));
  const int64_t rest = have / given;
  target[open] = symbols.empty() ? Dim(rest) : TEGULA_TRY(mul(symbols[0], rest));
  return target;
}

}  // namespace

std::optional<std::vector<int64_t>> normal_dims(std::string_view op, Var x,
                                                std::vector<int64_t> dims, Loc loc) {
  const std::vector<int64_t> given = dims;
  const int rank = x.rank();
  bool valid = true;
  for (int64_t& d : dims) {
    valid &= d >= -rank && d < rank;
    if (d < 0) d += rank;
  }
  std::sort(dims.begin(), dims.end());
  if (valid && std::adjacent_find(dims.begin(), dims.end()) == dims.end()) return dims;
  Builder& b = x.builder();
  if (!b.failed())
    b.fail(invalid_argument(cat(op, ": dims ", given, " of ", x.type(), ": each at least ", -rank,
                                ", below ", rank, ", and only once"),
                            loc));
  return std::nullopt;
}

namespace {

Var reduce(const OpDef& op, Var x, std::vector<int64_t> dims, bool keep, Loc loc) {
  auto normal = normal_dims(op.name, x, std::move(dims), loc);
  if (!normal || normal->empty()) return x;
  return x.builder().emit(op, {{"dims", std::move(*normal)}, {"keep", keep}}, {x}, loc);
}

}  // namespace

Var emit_unary(const OpDef& op, const Var& x, Loc loc) {
  return x.builder().emit(op, {}, {x}, loc);
}

Var emit_binary(const OpDef& op, const Var& x, const Var& y, Loc loc) {
  Builder& b = builder_of({&x, &y});
  if (x.is_poison() || y.is_poison()) return b.emit(op, {}, {x, y}, loc);
  if (!(x.shape() == y.shape())) {
    auto shape = broadcast_shapes(x.shape(), y.shape());
    if (!shape.ok()) {
      Error e = named(op.name, std::move(shape).error());
      e.where = loc;
      return b.fail(std::move(e));
    }
    return b.emit(op, {}, {broadcast(x, *shape, loc), broadcast(y, *shape, loc)}, loc);
  }
  return b.emit(op, {}, {x, y}, loc);
}

Var emit_binary(const OpDef& op, const Var& x, double y, Loc loc) {
  return emit_binary(op, x, fill(x.builder(), y, x.type(), loc), loc);
}

Var constant(Builder& b, double value, DType dtype, Loc loc) {
  return b.emit(constant_op, {{"dtype", dtype}, {"value", value}}, {}, loc);
}

Var constant_ints(Builder& b, std::vector<int64_t> values, DType dtype, Loc loc) {
  return b.emit(constant_op, {{"dtype", dtype}, {"values", std::move(values)}}, {}, loc);
}

Var fill(Builder& b, double value, const Type& type, Loc loc) {
  const Shape shape = type.shape;  // a copy: `type` may lie in the builder, which grows
  const Var c = constant(b, value, type.dtype, loc);
  return shape.rank() == 0 ? c : broadcast(c, shape, loc);
}

Var zeros_like(Var x, Loc loc) { return fill(x.builder(), 0, x.type(), loc); }

Var iota(Builder& b, const Shape& shape, int dim, DType dtype, Loc loc) {
  return b.emit(iota_op,
                {{"shape", std::vector<Dim>(shape.begin(), shape.end())},
                 {"dim", int64_t{dim}},
                 {"dtype", dtype}},
                {}, loc);
}

Var reshape(Var x, const Shape& target, Loc loc) {
  if (x.is_poison() || x.shape() == target) return x;
  const auto full = complete(x.shape(), target);
  if (!full.ok()) return x.builder().fail(invalid_argument(full.error().message, loc));
  const Shape shape = *full;
  return x.builder().emit(reshape_op, {{"shape", std::vector<Dim>(shape.begin(), shape.end())}},
                          {x}, loc);
}

Var permute(Var x, std::vector<int64_t> order, Loc loc) {
  bool identity = static_cast<int>(order.size()) == x.rank();
  for (size_t i = 0; i < order.size(); ++i) identity &= order[i] == static_cast<int64_t>(i);
  if (identity) return x;
  return x.builder().emit(permute_op, {{"order", std::move(order)}}, {x}, loc);
}

Var transpose(Var x, int a, int b, Loc loc) {
  const int rank = x.rank();
  std::vector<int64_t> order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  a = a < 0 ? a + rank : a, b = b < 0 ? b + rank : b;
  if (a < 0 || b < 0 || a >= rank || b >= rank)
    return x.builder().fail(invalid_argument(
        cat("transpose: dims ", a, " and ", b, " of a rank-", rank, " value"), loc));
  std::swap(order[static_cast<size_t>(a)], order[static_cast<size_t>(b)]);
  return permute(x, std::move(order), loc);
}

Var slice(Var x, int dim, int64_t start, Dim size, int64_t step, Loc loc) {
  if (dim < 0) dim += x.rank();
  if (size.bound() <= 1 && step != 0) step = step < 0 ? -1 : 1;  // says nothing of one element
  return x.builder().emit(
      slice_op,
      {{"dim", int64_t{dim}}, {"start", start}, {"size", std::vector<Dim>{size}}, {"step", step}},
      {x}, loc);
}

Var broadcast(Var x, const Shape& shape, Loc loc) {
  if (x.shape() == shape) return x;
  return x.builder().emit(broadcast_op, {{"shape", std::vector<Dim>(shape.begin(), shape.end())}},
                          {x}, loc);
}

Var unsqueeze(Var x, int dim, Loc loc) {
  Shape s = x.shape();
  const int at = dim < 0 ? dim + s.rank() + 1 : dim;
  if (at < 0 || at > s.rank() || s.rank() == kMaxRank)
    return x.builder().fail(
        invalid_argument(cat("unsqueeze: a new dim ", dim, " of ", x.type(), ": at least ",
                             -s.rank() - 1, ", at most ", s.rank(), ", and 8 dims in all"),
                         loc));
  s.insert(at, 1);
  return reshape(x, s, loc);
}

Var squeeze(Var x, int dim, Loc loc) {
  Shape s = x.shape();
  if (dim < 0) dim += s.rank();
  if (dim < 0 || dim >= s.rank() || !(s[dim] == Dim(1)))
    return x.builder().fail(
        invalid_argument(cat("squeeze: dim ", dim, " of ", x.type(), " is not 1"), loc));
  s.erase(dim);
  return reshape(x, s, loc);
}

// Half of erfc, not of 1 + erf: nothing cancels at negative x.
Var gelu_erf(Var x, Loc loc) {
  return mul(x, mul(erfc(mul(x, -0.7071067811865476, loc), loc), 0.5, loc), loc);
}

Var bitwise_not(Var x, Loc loc) {
  if (x.dtype() == DType::kBool) return logical_not(x, loc);
  return bitwise_xor(x, x.dtype() == DType::kU8 ? 255.0 : -1.0, loc);
}

Var operator+(const Var& x, const Var& y) { return add(x, y); }
Var operator-(const Var& x, const Var& y) { return sub(x, y); }
Var operator*(const Var& x, const Var& y) { return mul(x, y); }
Var operator/(const Var& x, const Var& y) { return div(x, y); }
Var operator+(const Var& x, double y) { return add(x, y); }
Var operator-(const Var& x, double y) { return sub(x, y); }
Var operator*(const Var& x, double y) { return mul(x, y); }
Var operator/(const Var& x, double y) { return div(x, y); }
Var operator*(double x, const Var& y) { return mul(y, x); }
Var operator+(double x, const Var& y) { return add(y, x); }
Var operator-(double x, const Var& y) { return sub(fill(y.builder(), x, y.type()), y); }
Var operator/(double x, const Var& y) { return div(fill(y.builder(), x, y.type()), y); }
Var operator-(const Var& x) { return neg(x); }

Var select(Var condition, Var if_true, Var if_false, Loc loc) {
  Builder& b = builder_of({&condition, &if_true, &if_false});
  if (condition.is_poison() || if_true.is_poison() || if_false.is_poison())
    return b.emit(select_op, {}, {condition, if_true, if_false}, loc);
  auto s = broadcast_shapes(if_true.shape(), if_false.shape());
  if (s.ok()) s = broadcast_shapes(condition.shape(), *s);
  if (!s.ok()) {
    Error e = named("select", std::move(s).error());
    e.where = loc;
    return b.fail(std::move(e));
  }
  return b.emit(
      select_op, {},
      {broadcast(condition, *s, loc), broadcast(if_true, *s, loc), broadcast(if_false, *s, loc)},
      loc);
}

Var fma(Var a, Var b, Var c, Loc loc) { return a.builder().emit(fma_op, {}, {a, b, c}, loc); }

Var cast(Var x, DType dtype, Loc loc) {
  if (x.dtype() == dtype) return x;
  return x.builder().emit(cast_op, {{"dtype", dtype}}, {x}, loc);
}

std::vector<Var> barrier(std::span<const Var> xs, std::span<const Var> after, Loc loc) {
  std::vector<Var> in(xs.begin(), xs.end());
  in.insert(in.end(), after.begin(), after.end());
  if (in.empty()) return {};
  auto out =
      in[0].builder().emit_n(barrier_op, {{"n", static_cast<int64_t>(xs.size())}}, in, {}, loc);
  out.resize(xs.size());
  return out;
}

// One node for each run of neighbouring dims, the last run first: each is a sum of rows or columns.
Var reduce_sum(Var x, std::vector<int64_t> dims, bool keep, Loc loc) {
  auto normal = normal_dims("reduce_sum", x, std::move(dims), loc);
  if (!normal) return x;
  dims = std::move(*normal);
  for (size_t i = dims.size(); i-- > 1;) {
    if (dims[i - 1] + 1 == dims[i]) continue;
    const auto run = dims.begin() + static_cast<std::ptrdiff_t>(i);
    x = reduce(reduce_sum_op, x, std::vector<int64_t>(run, dims.end()), keep, loc);
    dims.erase(run, dims.end());
  }
  return reduce(reduce_sum_op, x, std::move(dims), keep, loc);
}
Var reduce_max(Var x, std::vector<int64_t> dims, bool keep, Loc loc) {
  return reduce(reduce_max_op, x, std::move(dims), keep, loc);
}
Var reduce_min(Var x, std::vector<int64_t> dims, bool keep, Loc loc) {
  return reduce(reduce_min_op, x, std::move(dims), keep, loc);
}

Var reduce_prod(Var x, std::vector<int64_t> dims, bool keep, Loc loc) {
  if (!is_float(x.dtype()) && size_bits(x.dtype()) < 32) x = cast(x, DType::kI64, loc);
  return reduce(reduce_prod_op, x, std::move(dims), keep, loc);
}

Var reduce_to(Var x, const Shape& target, Loc loc) {
  if (x.shape() == target) return x;
  const Shape shape = target;  // a copy, as in fill
  std::vector<int64_t> dims;
  const int lead = x.rank() - shape.rank();
  for (int i = 0; i < x.rank(); ++i)
    if (i < lead || (shape[i - lead] == Dim(1) && !(x.dim(i) == Dim(1)))) dims.push_back(i);
  return reshape(reduce_sum(x, dims, false, loc), shape, loc);
}

Var extent(Var x, int dim, DType dtype, Loc loc) {
  if (dim < 0) dim += x.rank();
  const Dim size = x.dim(dim);
  if (size.is_const())
    return constant(
        x.builder(),
        static_cast<double>(is_float(dtype) ? size.bound() : wrapped_int(dtype, size.bound())),
        dtype, loc);
  return x.builder().emit(extent_op, {{"size", std::vector<Dim>{size}}, {"dtype", dtype}}, {}, loc);
}

Var random_uniform(Var seed, const Shape& shape, int64_t stream, DType dtype, Loc loc) {
  return seed.builder().emit(random_uniform_op,
                             {{"shape", std::vector<Dim>(shape.begin(), shape.end())},
                              {"stream", stream},
                              {"dtype", dtype}},
                             {seed}, loc);
}

Var matmul(Var x, Var w, Loc loc) {
  static constexpr std::string_view kSpecs[] = {"k, k n -> n", "a k, k n -> a n",
                                                "a b k, k n -> a b n", "a b c k, k n -> a b c n",
                                                "a b c d k, k n -> a b c d n"};
  if (x.rank() < 1 || x.rank() > 5)
    return x.builder().fail(invalid_argument(cat("matmul: x is ", x.type(), ", rank 1 to 5"), loc));
  return dot(kSpecs[x.rank() - 1], x, w, loc);
}

}  // namespace tegula
