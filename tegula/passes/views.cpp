// Puts views into one form: chains of a kind become one view, those that do nothing vanish, and a
// permutation of an operand or result of `dot` becomes the order of its factors. Views move no
// bytes, so nothing is computed differently; a dot keeps the order of its contracted factors.
#include <algorithm>

#include "tegula/ops/common/fused.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

Var permute_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const auto& order = n.attrs.ints("order");
  if (std::ranges::is_sorted(order)) return x;
  if (const Node* m = p.made_by(x, permute_op)) {
    std::vector<int64_t> both;
    for (int64_t d : order) both.push_back(m->attrs.ints("order")[d]);
    return permute(p.operand(*m, 0), both);
  }
  // Only dims of extent 1 change places: a reshape, which fuses.
  std::vector<int64_t> moved;
  for (int64_t d : order)
    if (!(x.dim(static_cast<int>(d)) == Dim(1))) moved.push_back(d);
  return std::ranges::is_sorted(moved) ? reshape(x, p.result_type(n).shape) : Var();
}

Var reshape_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const Shape& to = p.result_type(n).shape;
  if (x.shape() == to) return x;
  const Node* m = p.made_by(x, reshape_op);
  if (!m) return {};
  // Two steps of symbolic dims may have no one that stands for them.
  const Type from[] = {p.operand(*m, 0).type()};
  const Attrs attrs = {{"shape", std::vector<Dim>(to.begin(), to.end())}};
  if (!to.is_const() && !infer({&reshape_op, &attrs, from}).ok()) return {};
  return reshape(p.operand(*m, 0), to);
}

// Is `s` with 1s before it the shape `x`?
bool only_leads_with_ones(const Shape& s, const Shape& x) {
  const int lead = x.rank() - s.rank();
  if (lead < 0) return false;
  for (int d = 0; d < x.rank(); ++d)
    if (!(x[d] == (d < lead ? Dim(1) : s[d - lead]))) return false;
  return true;
}

Var broadcast_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const Shape& to = p.result_type(n).shape;
  if (x.shape() == to) return x;
  if (const Node* m = p.made_by(x, broadcast_op)) return broadcast(p.operand(*m, 0), to);
  // Broadcasting adds leading 1s by itself.
  const Node* m = p.made_by(x, reshape_op);
  if (m && only_leads_with_ones(p.operand(*m, 0).shape(), x.shape()))
    return broadcast(p.operand(*m, 0), to);
  return {};
}

Var slice_rule(Peephole& p, const Node& n) {
  const Var x = p.in(n, 0);
  const auto dim = static_cast<int>(n.attrs.i("dim"));
  const int64_t start = n.attrs.i("start"), step = n.attrs.i("step");
  const Dim size = n.attrs.dims("size")[0];
  if (start == 0 && step == 1 && size == x.dim(dim)) return x;
  if (const Node* m = p.made_by(x, slice_op)) {
    if (m->attrs.i("dim") != dim) return {};
    const int64_t s = m->attrs.i("step");
    return slice(p.operand(*m, 0), dim, m->attrs.i("start") + s * start, size, s * step);
  }
  // A piece of a concatenation of which it takes exactly one operand.
  const Node* m = p.made_by(x, concat_op);
  if (!m || step != 1 || m->attrs.i("dim") != dim) return {};
  int64_t at = 0;
  for (size_t k = 0; k < m->inputs.size(); ++k) {
    const Var piece = p.operand(*m, k);
    if (!piece.dim(dim).is_const()) return {};
    if (at == start && piece.dim(dim) == size) return piece;
    at += piece.dim(dim).bound();
  }
  return {};
}

// dot(permute a, b): dims are only named in another order. The contracted factors must stand in a
// in the same order as before, because that is the order of the sum.
Var dot_operand_rule(Peephole& p, const Node& n) {
  for (size_t k = 0; k < 2; ++k) {
    const Node* m = p.made_by(p.in(n, k), permute_op);
    if (!m) continue;
    DotDims dims = dims_of(n);
    const DimNames contracted = dims.a.not_in(dims.out);
    const auto& order = m->attrs.ints("order");
    DimNames& side = k == 0 ? dims.a : dims.b;
    const DimNames permuted = side;
    for (int d = 0; d < side.size(); ++d) side[static_cast<int>(order[d])] = permuted[d];
    if (!(dims.a.not_in(dims.out) == contracted)) continue;
    Attrs attrs = n.attrs;
    attrs.set("dims", dims.text());
    std::vector<Var> in;
    for (size_t i = 0; i < n.inputs.size(); ++i)
      in.push_back(i == k ? p.operand(*m, 0) : p.in(n, i));
    return p.builder().emit_n(*n.op, std::move(attrs), in, {}, n.origin.loc)[0];
  }
  return {};
}

// permute(dot), if nothing else reads the dot: it writes that order itself. A bias runs over the
// factors that only b has, in the result's order: those must stay in order.
Var permuted_dot_rule(Peephole& p, const Node& n) {
  const Node* m = p.made_by(p.in(n, 0), dot_op);
  if (!m || !p.is_only_reader(n, 0, dot_op)) return {};
  DotDims dims = dims_of(*m);
  const DimNames bias = dims.out.not_in(dims.a);
  DimNames out;
  for (int64_t d : n.attrs.ints("order")) out.push_back(dims.out[static_cast<int>(d)]);
  dims.out = out;
  if (m->attrs.flag("bias") && !(dims.out.not_in(dims.a) == bias)) return {};
  Attrs attrs = m->attrs;
  attrs.set("dims", dims.text());
  std::vector<Var> in;
  for (size_t i = 0; i < m->inputs.size(); ++i) in.push_back(p.operand(*m, i));
  return p.builder().emit_n(dot_op, std::move(attrs), in, {}, n.origin.loc)[0];
}

Result<bool> run(Module& m, Function& f, const PassOptions&) {
  static constexpr Peephole::Rule kRules[] = {
      {&permute_op, permute_rule}, {&permute_op, permuted_dot_rule},
      {&reshape_op, reshape_rule}, {&broadcast_op, broadcast_rule},
      {&slice_op, slice_rule},     {&dot_op, dot_operand_rule}};
  return Peephole::rewrite(m, f, kRules);
}

}  // namespace

extern const PassDef views_pass = {
    .name = "views",
    .doc = "puts views into one form, and into dot's dims",
    .phase = PassPhase::kAny,
    .run = run,
};

}  // namespace tegula
