#include "tegula/ops/common/regions.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/saturating.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"

namespace tegula {

std::vector<int64_t> extents_from(const OpCall& call, const Function& region, size_t first) {
  std::vector<int64_t> extents;
  for (const Symbol& s : call.module->symbols) extents.push_back(s.bound);
  auto imply = [&](const Shape& inner, const Shape& outer) {
    const int skip = outer.rank() - inner.rank();  // a stacked tensor has one more dim in front
    for (int d = 0; d < inner.rank() && skip >= 0; ++d) {
      const Dim have = outer[d + skip], want = inner[d];
      if (!want.is_const() && have.is_const())
        extents[static_cast<size_t>(want.symbol)] = (have.offset - want.offset) / want.scale;
    }
  };
  for (size_t i = 0; i < region.params.size() && first + i < call.in.size(); ++i)
    imply(region.type(region.params[i].value).shape, call.in[first + i].shape);
  for (size_t i = 0; i < region.results.size() && i < call.out.size(); ++i)
    imply(region.type(region.results[i].value).shape, call.out[i].shape);
  return extents;
}

namespace {
// Keeps its lists from node to node.
struct NodeFlops {
  const Module& module;
  const Function& f;
  std::span<const int64_t> extents;
  std::vector<Type> in, out;

  int64_t of(const Node& n) {
    if (!n.op->flops) return 0;
    in.clear(), out.clear();
    for (ValueId v : n.inputs) in.push_back(f.type(v));
    for (uint32_t i = 0; i < n.n_outputs; ++i) out.push_back(f.type(n.output(i)));
    for (auto* types : {&in, &out})
      for (Type& t : *types)
        if (!extents.empty()) t.shape = t.shape.at(extents);
    return flops_of({n.op, &n.attrs, in, out, &module, n.regions});
  }
};
}  // namespace

int64_t flops_of(const Module& module, const Function& f, const Node& n,
                 std::span<const int64_t> extents) {
  return NodeFlops{module, f, extents, {}, {}}.of(n);
}

int64_t flops_of(const Module& module, const Function& f, std::span<const int64_t> extents) {
  NodeFlops flops{module, f, extents, {}, {}};
  int64_t total = 0;
  for (const Node& n : f.nodes) total = saturating_add(total, flops.of(n));
  return total;
}

int64_t region_flops(const OpCall& c) {
  const RegionDef& def = *c.op->regions;
  const RegionLayout l(def, *c.attrs, c.in.size());
  const auto extents = extents_from(c, c.region(def.body()), l.first);
  int64_t sum = 0, most = 0;
  for (FuncId r : c.regions) {
    const int64_t flops = flops_of(*c.module, (*c.module)[r], extents);
    sum = saturating_add(sum, flops), most = std::max(most, flops);
  }
  if (def.is_choice()) return most;
  // The xs tell the run's length; the attribute may name a symbol that no slice has.
  const size_t x = l.first + l.n_carry;
  return saturating_mul(sum,
                        l.n_xs > 0 ? c.shape(x)[0].bound() : region_rounds(def, *c.attrs, extents));
}

namespace {
std::vector<bool> live_values(const Function& f, const std::vector<bool>* keep_result) {
  std::vector<bool> live(f.values.size(), false);
  for (size_t r = 0; r < f.results.size(); ++r)
    if (!keep_result || (*keep_result)[r]) live[f.results[r].value] = true;
  for (size_t n = f.nodes.size(); n-- > 0;) {
    const Node& node = f.nodes[n];
    bool any = false;
    for (uint32_t i = 0; i < node.n_outputs; ++i) any |= live[node.output(i)];
    if (any)
      for (ValueId v : node.inputs) live[v] = true;
  }
  return live;
}
}  // namespace

std::vector<bool> live_params(const Function& f, const std::vector<bool>* keep_result) {
  const auto live = live_values(f, keep_result);
  std::vector<bool> out;
  for (const Param& p : f.params) out.push_back(live[p.value]);
  return out;
}

Function restrict_to(const Function& f, const std::vector<bool>& keep_param,
                     const std::vector<bool>& keep_result) {
  const auto live = live_values(f, &keep_result);
  Function out;
  out.name = f.name;
  std::vector<ValueId> map(f.values.size(), kNone);
  for (size_t p = 0; p < f.params.size(); ++p) {
    const Param& from = f.params[p];
    if (!keep_param[p]) {
      TEGULA_CHECK(!live[from.value], f.name, ": parameter ", from.name, " is used");
      continue;
    }
    map[from.value] = static_cast<ValueId>(out.values.size());
    out.values.push_back({f.type(from.value), kNone, static_cast<uint32_t>(out.params.size())});
    out.params.push_back({from.name, map[from.value], from.role, -1});
  }
  for (const Node& n : f.nodes) {
    bool any = false;
    for (uint32_t i = 0; i < n.n_outputs; ++i) any |= live[n.output(i)];
    if (!any) continue;
    Node& copy = out.nodes.emplace_back(n);
    for (ValueId& v : copy.inputs) v = map[v];
    copy.first_output = static_cast<ValueId>(out.values.size());
    for (uint32_t i = 0; i < n.n_outputs; ++i) {
      map[n.output(i)] = static_cast<ValueId>(out.values.size());
      out.values.push_back({f.type(n.output(i)), static_cast<NodeId>(out.nodes.size() - 1), i});
    }
  }
  for (size_t r = 0; r < f.results.size(); ++r)
    if (keep_result[r]) out.results.push_back({f.results[r].name, map[f.results[r].value]});
  return out;
}

std::string fresh_name(Builder& b, std::string_view what) {
  return cat(b.function().name, ".", what, b.module().functions.size());
}

TensorRef slice_at(const TensorRef& t, int64_t index) {
  TensorRef s = t;
  s.rank = t.rank - 1;
  for (int d = 0; d < s.rank; ++d) s.shape[d] = t.shape[d + 1], s.stride[d] = t.stride[d + 1];
  s.data = t.as<uint8_t>() + index * t.stride[0] * size_bytes(t.dtype);
  return s;
}

Result<FuncId> region_pullback(Builder& b, FuncId id) {
  const Function f = b.module()[id];  // a copy: the module grows
  Builder g(b.module(), fresh_name(b, "pullback"));
  g.set_phase(b.phase());
  std::vector<Var> args, cts;
  for (const Param& p : f.params) args.push_back(g.param(p.name, f.type(p.value)));
  for (const Output& r : f.results)
    cts.push_back(is_float(f.type(r.value).dtype) ? g.param("d" + r.name, f.type(r.value)) : Var());
  const auto grads = pullback(g, inline_call(g, f, args), cts, args);
  for (size_t i = 0; i < args.size(); ++i)
    if (is_float(args[i].dtype())) g.result("d" + f.params[i].name, or_zeros(grads[i], args[i]));
  return g.finish_into_module();
}

Result<FuncId> region_pushforward(Builder& b, FuncId id, std::span<const Var> outer) {
  const Function f = b.module()[id];
  Builder g(b.module(), fresh_name(b, "pushforward"));
  g.set_phase(b.phase());
  std::vector<Var> args, active, tangents;
  for (const Param& p : f.params) args.push_back(g.param(p.name, f.type(p.value)));
  for (size_t i = 0; i < args.size(); ++i)
    if (outer[i].valid()) {
      active.push_back(args[i]);
      tangents.push_back(g.param("d" + f.params[i].name, args[i].type()));
    }
  const auto ys = inline_call(g, f, args);
  const auto dys = pushforward(g, ys, active, tangents);
  for (size_t i = 0; i < ys.size(); ++i)
    if (is_float(ys[i].dtype())) g.result("d" + f.results[i].name, or_zeros(dys[i], ys[i]));
  return g.finish_into_module();
}

std::vector<Var> join_valid(std::span<const Var> first, std::span<const Var> maybe) {
  std::vector<Var> out(first.begin(), first.end());
  for (const Var& v : maybe)
    if (v.valid()) out.push_back(v);
  return out;
}

std::vector<Var> spread_floats(std::span<const Var> like, std::span<const Var> values) {
  std::vector<Var> out(like.size());
  size_t k = 0;
  for (size_t i = 0; i < like.size(); ++i)
    if (is_float(like[i].dtype()) && k < values.size()) out[i] = values[k++];
  return out;
}

Var or_zeros(Var v, Var like) { return v.valid() ? v : zeros_like(like); }

}  // namespace tegula
