#include "tegula/ops/common/collective.h"

#include "tegula/base/element.h"

namespace tegula {

namespace {
Attrs group_attrs(const Group& group) {
  Attrs a{{"axis", std::string(group.axis)}, {"ranks", group.n_ranks}};
  if (group.in_background) a.set("background", true);
  return a;
}

int from_end(int dim, Var x) { return dim < 0 ? dim + x.rank() : dim; }
}  // namespace

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

std::vector<Sample> collective_samples(std::vector<std::pair<std::string_view, Attrs>> valid,
                                       std::vector<std::pair<Attrs, std::string_view>> wrong,
                                       bool has_algorithms) {
  const SampleInput x = {{DType::kF32, {2, 6, 3}}};
  std::vector<Sample> all;
  for (auto& [name, attrs] : valid) {
    all.push_back({std::string(name), {x}, attrs});
    if (!has_algorithms) continue;
    attrs.set("algorithm", std::string("ring"));
    all.push_back({cat(name, ", ring"), {x}, std::move(attrs)});
  }
  for (auto& [attrs, error] : wrong)
    all.push_back({cat("wrong ", all.size()), {x}, std::move(attrs), std::string(error)});
  return all;
}

std::vector<Sample> samples_with_root() {
  const Attrs alone{{"axis", std::string("dp")}, {"ranks", int64_t{1}}, {"root", int64_t{0}}};
  Attrs other = alone, below = alone;
  other.set("root", int64_t{1}), below.set("root", int64_t{-1});
  return collective_samples(
      {{"alone", alone}},
      {{other, "root 1 is none of the 1 ranks"}, {below, "root -1 is none of the 1 ranks"}}, true);
}

Var all_reduce(Var x, const Group& group, Combine combine, Loc loc) {
  Attrs a = group_attrs(group);
  if (combine != Combine::kSum)
    a.set("combine", std::string(combine == Combine::kMax ? "max" : "min"));
  return x.builder().emit(all_reduce_op, std::move(a), {x}, loc);
}

Var all_gather(Var x, const Group& group, int dim, int64_t parts, Loc loc) {
  Attrs a = group_attrs(group);
  a.set("dim", int64_t{from_end(dim, x)}), a.set("parts", parts);
  return x.builder().emit(all_gather_op, std::move(a), {x}, loc);
}

Var reduce_scatter(Var x, const Group& group, int dim, int64_t parts, Loc loc) {
  Attrs a = group_attrs(group);
  a.set("dim", int64_t{from_end(dim, x)}), a.set("parts", parts);
  return x.builder().emit(reduce_scatter_op, std::move(a), {x}, loc);
}

Var all_to_all(Var x, const Group& group, int split, int gather, Loc loc) {
  Attrs a = group_attrs(group);
  a.set("split", int64_t{from_end(split, x)}), a.set("gather", int64_t{from_end(gather, x)});
  return x.builder().emit(all_to_all_op, std::move(a), {x}, loc);
}

Var all_to_all_ragged(Var x, Var sent, Var received, const Group& group, int split, int gather,
                      Loc loc) {
  Attrs a = group_attrs(group);
  a.set("split", int64_t{from_end(split, x)}), a.set("gather", int64_t{from_end(gather, x)});
  return x.builder().emit(all_to_all_ragged_op, std::move(a), {x, sent, received}, loc);
}

Var send_recv(Var x, const Group& group, std::vector<int64_t> from, Loc loc) {
  Attrs a = group_attrs(group);
  a.set("from", std::move(from));
  return x.builder().emit(send_recv_op, std::move(a), {x}, loc);
}

namespace {
Var with_root(const OpDef& op, Var x, const Group& group, int64_t root, Loc loc) {
  Attrs a = group_attrs(group);
  a.set("root", root);
  return x.builder().emit(op, std::move(a), {x}, loc);
}
}  // namespace

Var broadcast_from(Var x, const Group& group, int64_t root, Loc loc) {
  return with_root(broadcast_from_op, x, group, root, loc);
}
Var reduce_to(Var x, const Group& group, int64_t root, Loc loc) {
  return with_root(reduce_to_op, x, group, root, loc);
}

}  // namespace tegula
