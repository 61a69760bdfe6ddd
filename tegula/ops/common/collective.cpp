#include "tegula/ops/common/collective.h"

#include "tegula/base/element.h"

namespace tegula {

Status check_group(const OpCall& c) {
  if (c.attrs->i("ranks") >= 1) return {};
  return invalid_argument(cat(c.op->name, ": a group of ", c.attrs->i("ranks"), " ranks"));
}

Status check_group_dim(const OpCall& c, std::string_view name, bool shrinks) {
  TEGULA_TRY(check_group(c));
  const GroupCall g(c);
  const int64_t dim = c.attrs->get_or<int64_t>(name, 0);
  const Shape& x = c.shape(0);
  if (dim < 0 || dim >= x.rank() || g.parts < 1 || !x[static_cast<int>(dim)].is_const())
    return invalid_argument(cat(c.op->name, ": dim ", dim, " of ", x, " in ", g.parts,
                                " parts: must be one of constant extent"));
  const int64_t extent = x[static_cast<int>(dim)].bound();
  const int64_t by = g.parts * (shrinks ? g.n : 1);
  if (extent % by == 0) return {};
  return invalid_argument(cat(c.op->name, ": dim ", dim, " of ", x, " is not a multiple of ",
                              g.parts, " parts", shrinks ? cat(" of ", g.n, " ranks") : ""));
}

Status check_root(const OpCall& c) {
  TEGULA_TRY(check_group(c));
  const int64_t root = c.attrs->i("root"), n = GroupCall(c).n;
  if (root >= 0 && root < n) return {};
  return invalid_argument(
      cat(c.op->name, ": root ", root, " is none of the ", n, " ranks of the group"));
}

DimExpr uncut(DimMap& m, Dim size) {
  const auto f = static_cast<uint8_t>(m.add_factor(cat("w", m.factors.size()), size));
  m.factors.back().whole = true;
  return {0, {{f, 1}}};
}

Result<DimMap> collective_dims(const OpCall& c, const Shape& result) {
  const Shape& x = c.shape(0);
  DimMap m;
  m.operands.emplace_back(), m.results.emplace_back(), m.result_shapes.push_back(result);
  for (int d = 0; d < x.rank(); ++d) {
    m.operands[0].push_back(uncut(m, x[d]));
    m.results[0].push_back(x[d] == result[d] ? m.operands[0].back() : uncut(m, result[d]));
  }
  m.finish();
  return m;
}

Result<DimMap> share_dims(const OpCall& c, bool shrinks) {
  TEGULA_TRY(check_group_dim(c, "dim", shrinks));
  const GroupCall g(c);
  Shape y = c.shape(0);
  Dim& extent = y[static_cast<int>(g.dim)];
  extent = shrinks ? Dim(extent.bound() / g.n) : TEGULA_TRY(mul(extent, Dim(g.n)));
  return collective_dims(c, y);
}

namespace {
// fn(share, i, at): index i of a rank's share is index `at` of the whole.
template <class F>
void for_shares(const OpCall& c, std::span<const TensorRef> shares, F&& fn) {
  const GroupCall g(c);
  const auto dim = static_cast<size_t>(g.dim);
  const int64_t run = shares[0].shape[dim] / g.parts;
  for (size_t r = 0; r < shares.size(); ++r)
    for_each_index(shape_of(shares[r]), [&](const Index& i) {
      Index at = i;
      at[dim] = (i[dim] / run * g.n + static_cast<int64_t>(r)) * run + i[dim] % run;
      fn(shares[r], i, at);
    });
}
}  // namespace

void join_shares(const OpCall& c, std::span<const TensorRef> shares,
                 std::span<const TensorRef> wholes) {
  for_shares(c, shares, [&](const TensorRef& share, const Index& i, const Index& at) {
    const double x = load_element(share, RefTensors::offset_at(share, i));
    for (const TensorRef& y : wholes) store_element(y, RefTensors::offset_at(y, at), x);
  });
}

void share_out_sum(const OpCall& c, std::span<const TensorRef> wholes,
                   std::span<const TensorRef> shares) {
  for_shares(c, shares, [&](const TensorRef& share, const Index& i, const Index& at) {
    store_element(share, RefTensors::offset_at(share, i), reduced(Combine::kSum, wholes, at));
  });
}

int64_t bytes_of_others(const OpCall& c, int64_t) {
  const int64_t n = GroupCall(c).n;
  return c.in[0].bytes() / n * (n - 1);
}

Attrs turned(Attrs attrs) {
  std::swap(*attrs.find("split"), *attrs.find("gather"));
  return attrs;
}

Combine combine_of(const Attrs& attrs) {
  const auto how = attrs.get_or<std::string>("combine", "sum");
  return how == "max" ? Combine::kMax : how == "min" ? Combine::kMin : Combine::kSum;
}

double reduced(Combine combine, std::span<const TensorRef> in, const Index& i) {
  if (in.size() == 1) return load_element(in[0], RefTensors::offset_at(in[0], i));
  // The left half of a tree over neighbours is the largest power of two below the whole.
  size_t half = 1;
  while (2 * half < in.size()) half *= 2;
  const double a = reduced(combine, in.first(half), i), b = reduced(combine, in.subspan(half), i);
  if (combine == Combine::kMax) return scalar::max(a, b);
  if (combine == Combine::kMin) return scalar::min(a, b);
  return rounded_to(in[0].dtype, a + b);
}

std::vector<Sample> collective_samples(const Attrs& own, std::vector<Changed> changed,
                                       std::string_view algorithm) {
  Attrs alone{{"axis", std::string("dp")}, {"ranks", int64_t{1}}};
  for (const auto& [name, value] : own) alone.set(name, value);
  changed.insert(changed.begin(), Changed{});
  if (!algorithm.empty()) changed.push_back({{{"algorithm", std::string(algorithm)}}, ""});
  std::vector<Sample> all;
  for (const Changed& c : changed) {
    Attrs attrs = alone;
    for (const auto& [name, value] : c.attrs) attrs.set(name, value);
    all.push_back({cat(c.error.empty() ? "alone " : "wrong ", all.size()),
                   {{{DType::kF32, {2, 6, 3}}}},
                   std::move(attrs),
                   std::string(c.error)});
  }
  return all;
}

std::vector<Sample> samples_with_root(bool has_dim) {
  Attrs own{{"root", int64_t{0}}};
  std::vector<Changed> changed = {{{{"root", int64_t{1}}}, "root 1 is none of the 1 ranks"},
                                  {{{"root", int64_t{-1}}}, "root -1 is none of the 1 ranks"}};
  if (has_dim) {
    own.set("dim", int64_t{1});
    changed.push_back({{{"dim", int64_t{3}}}, "must be one of constant extent"});
  }
  return collective_samples(own, std::move(changed), has_dim ? "mst" : "ring");
}

namespace {
// With attributes of the op's own.
Var in_group(const OpDef& op, std::initializer_list<Var> x, const Group& group, Attrs own,
             Loc loc) {
  own.set("axis", std::string(group.axis)), own.set("ranks", group.n_ranks);
  if (group.in_background) own.set("background", true);
  return x.begin()->builder().emit(op, std::move(own), x, loc);
}

int64_t from_end(int dim, Var x) { return dim < 0 ? dim + x.rank() : dim; }
}  // namespace

Var all_reduce(Var x, const Group& group, Combine combine, Loc loc) {
  Attrs a;
  if (combine != Combine::kSum)
    a.set("combine", std::string(combine == Combine::kMax ? "max" : "min"));
  return in_group(all_reduce_op, {x}, group, std::move(a), loc);
}

Var all_gather(Var x, const Group& group, int dim, int64_t parts, Loc loc) {
  return in_group(all_gather_op, {x}, group, {{"dim", from_end(dim, x)}, {"parts", parts}}, loc);
}

Var reduce_scatter(Var x, const Group& group, int dim, int64_t parts, Loc loc) {
  return in_group(reduce_scatter_op, {x}, group, {{"dim", from_end(dim, x)}, {"parts", parts}},
                  loc);
}

Var all_to_all(Var x, const Group& group, int split, int gather, Loc loc) {
  return in_group(all_to_all_op, {x}, group,
                  {{"split", from_end(split, x)}, {"gather", from_end(gather, x)}}, loc);
}

Var all_to_all_ragged(Var x, Var sent, Var received, const Group& group, int split, int gather,
                      Loc loc) {
  return in_group(all_to_all_ragged_op, {x, sent, received}, group,
                  {{"split", from_end(split, x)}, {"gather", from_end(gather, x)}}, loc);
}

Var send_recv(Var x, const Group& group, std::vector<int64_t> from, Loc loc) {
  return in_group(send_recv_op, {x}, group, {{"from", std::move(from)}}, loc);
}

Var broadcast_from(Var x, const Group& group, int64_t root, Loc loc) {
  return in_group(broadcast_from_op, {x}, group, {{"root", root}}, loc);
}

Var reduce_to(Var x, const Group& group, int64_t root, Loc loc) {
  return in_group(reduce_to_op, {x}, group, {{"root", root}}, loc);
}

Var scatter_from(Var x, const Group& group, int64_t root, int dim, Loc loc) {
  return in_group(scatter_from_op, {x}, group, {{"root", root}, {"dim", from_end(dim, x)}}, loc);
}

Var gather_to(Var x, const Group& group, int64_t root, int dim, Loc loc) {
  return in_group(gather_to_op, {x}, group, {{"root", root}, {"dim", from_end(dim, x)}}, loc);
}

}  // namespace tegula
