// Derivatives of scan. Reverse: a scan in the other direction whose body is the pullback of the
// body. It computes the body's values again from the saved carries, but for products of carries:
// they are the longest way through a step, so the forward loop gives them as ys. The gradients of
// invariants are summed in its carry, in the order in which unrolled steps would be. Forward: one
// scan of values and tangents together.
#include "tegula/ops/common/scan.h"

#include "tegula/base/range.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/math.h"

namespace tegula {

ScanLayout::ScanLayout(const OpCall& c)
    : RegionLayout(*c.op->regions, *c.attrs, c.in.size()),
      n_ys(c.region(0).results.size() - n_carry),
      length(c.attrs->dims("length")[0]) {}

Type ScanLayout::inner(size_t i, const Type& outer) const {
  return is_x(i) ? slice_type(outer) : outer;
}

namespace {

// A body under construction: its parameters in the order carries, xs, invariants, each with the
// outer value it takes.
class NewBody {
 public:
  NewBody(Builder& b, std::string_view what) : body_(b.module(), fresh_name(b, what)) {
    body_.set_phase(b.phase());
  }
  enum Group { kCarry, kXs, kInvariants };
  Builder& builder() { return body_; }
  Var param(Group group, std::string name, const Type& type, Var outer) {
    const Var v = body_.param(std::move(name), type);
    outer_.push_back({outer, group});
    return v;
  }
  // Later: what parameter v takes.
  void set_outer(Var v, Var outer) { outer_[v.id()].first = outer; }
  Result<Function> finish() { return body_.finish(); }

  // A scan of f, which has this body's parameters less those that f does not read (carries stay).
  std::vector<Var> emit(Builder& b, const OpDef& op, Attrs attrs, const Function& f) {
    std::vector<bool> keep = live_params(f);
    int64_t count[3] = {};
    std::vector<Var> in;
    for (size_t i = 0; i < outer_.size(); ++i) {
      const auto& [v, group] = outer_[i];
      if (group == kCarry) keep[i] = true;
      if (keep[i]) in.push_back(v), ++count[group];
    }
    attrs.set("n_carry", count[kCarry]);
    attrs.set("n_xs", count[kXs]);
    const FuncId id =
        b.module().add(restrict_to(f, keep, std::vector<bool>(f.results.size(), true)));
    return b.emit_n(op, std::move(attrs), in, {id});
  }

 private:
  Builder body_;
  std::vector<std::pair<Var, Group>> outer_;  // by parameter, whose value id is its number
};

// v, and then what alone is made of it, element by element: what of these the pullback reads is
// kept.
void add_chain(const Function& body, ValueId v, std::vector<ValueId>& chain) {
  while (!contains(chain, v)) {
    chain.push_back(v);
    const Node* user = nullptr;
    int n_uses = 0;
    for (const Node& n : body.nodes)
      for (ValueId x : n.inputs)
        if (x == v) user = &n, ++n_uses;
    for (const Output& r : body.results) n_uses += r.value == v;
    if (n_uses != 1 || !user || !user->op->is_elementwise || user->n_outputs != 1 ||
        !(body.type(user->output()) == body.type(v)))
      return;
    v = user->output();
  }
}

// Values of the body that depend on a carry and take more FLOPs than it costs to keep them.
std::vector<ValueId> carried_products(const Module& m, const Function& body, const ScanLayout& l,
                                      std::span<const int64_t> extents) {
  constexpr int64_t kFlopsWorthAnElement = 16;
  std::vector<bool> is_carried(body.values.size(), false);
  for (size_t i = 0; i < l.n_carry; ++i) is_carried[body.params[i].value] = true;
  std::vector<ValueId> products;
  for (const Node& n : body.nodes) {
    const bool any = any_of(n.inputs, [&](ValueId v) { return is_carried[v]; });
    for (uint32_t i = 0; any && i < n.n_outputs; ++i) is_carried[n.output(i)] = true;
    if (!any || n.n_outputs != 1 || !n.regions.empty()) continue;
    const Shape& s = body.type(n.output()).shape;
    const int64_t numel = extents.empty() ? s.numel() : s.at(extents).numel();
    if (s.rank() < kMaxRank && flops_of(m, body, n, extents) > kFlopsWorthAnElement * numel)
      add_chain(body, n.output(), products);
  }
  return products;
}

// The values of the forward loop that the reverse one reads: the stacked values of the wanted
// carries and products, from this scan or from one that gives them too (which the pass merge_scans
// makes one with this). Invalid where not wanted.
struct Saved {
  std::vector<Var> carries, products;

  Saved(Builder& b, const VjpCall& c, const ScanLayout& l, std::span<const ValueId> values,
        const std::vector<bool>& wants_carry, const std::vector<bool>& wants_product)
      : carries(l.n_carry), products(values.size()) {
    std::vector<int64_t> saves(l.saves.begin(), l.saves.end());
    for (size_t i = 0; i < l.n_carry; ++i)
      if (wants_carry[i] && !contains(saves, static_cast<int64_t>(i)))
        saves.push_back(static_cast<int64_t>(i));
    std::vector<FuncId> regions(c.call->regions.begin(), c.call->regions.end());
    size_t n_ys = l.n_ys;
    if (std::count(wants_product.begin(), wants_product.end(), true) > 0) {
      Function f = c.call->region(0);
      for (size_t i = 0; i < values.size(); ++i)
        if (wants_product[i]) f.results.push_back({cat("product", i), values[i]}), ++n_ys;
      f.name = fresh_name(b, "scan_saving");
      regions = {b.module().add(std::move(f))};
    }
    std::vector<Var> out(c.out.begin(), c.out.end());
    if (saves.size() > l.saves.size() || n_ys > l.n_ys) {
      Attrs attrs = c.attrs();
      if (!saves.empty()) attrs.set("saves", saves);
      out = b.emit_n(*c.call->op, std::move(attrs), c.in, std::move(regions));
    }
    if (b.failed()) return;
    for (size_t i = 0; i < saves.size(); ++i) carries[saves[i]] = out[l.n_carry + n_ys + i];
    size_t next = l.n_carry + l.n_ys;
    for (size_t i = 0; i < values.size(); ++i)
      if (wants_product[i]) products[i] = out[next++];
  }
};

// Reads `now` wherever f reads `was`.
void substitute(Function& f, ValueId was, ValueId now) {
  for (Node& n : f.nodes) std::replace(n.inputs.begin(), n.inputs.end(), was, now);
  for (Output& r : f.results)
    if (r.value == was) r.value = now;
}

// The parameters of the reverse body: gradients of carries, sums for invariants; saved carries, xs,
// gradients of ys and of saved stacks, saved products; invariants. Invalid where there is no
// gradient.
struct ReverseParams {
  std::vector<Var> args;  // the forward body's
  std::vector<Var> dc, sum, dy, ds, products;

  ReverseParams(NewBody& body, const VjpCall& c, const ScanLayout& l, std::span<const Type> results,
                std::span<const Type> product_types)
      : dc(l.n_carry), sum(l.n_invariants), dy(l.n_ys), ds(l.n_carry) {
    for (size_t i = 0; i < l.n_carry; ++i)
      if (is_float(results[i].dtype))
        dc[i] = body.param(NewBody::kCarry, cat("dc", i), results[i], c.grad[i]);
    for (size_t i = 0; i < l.n_invariants; ++i)
      if (const Var v = c.in[l.first_invariant() + i]; is_float(v.dtype()))
        sum[i] = body.param(NewBody::kCarry, cat("di", i), v.type(), zeros_like(v));
    for (size_t i = 0; i < l.n_operands(); ++i)
      if (i < l.first_invariant())
        args.push_back(body.param(NewBody::kXs, cat(l.is_x(i) ? "x" : "c", i),
                                  l.inner(i, c.in[i].type()), c.in[i]));
    for (size_t i = 0; i < l.n_ys; ++i)
      if (const Type& t = results[l.n_carry + i]; is_float(t.dtype))
        dy[i] = body.param(NewBody::kXs, cat("dy", i), t, c.grad[l.n_carry + i]);
    for (size_t i = 0; i < l.saves.size(); ++i)
      if (const auto k = static_cast<size_t>(l.saves[i]); is_float(results[k].dtype))
        ds[k] = body.param(NewBody::kXs, cat("ds", i), results[k], c.grad[l.n_carry + l.n_ys + i]);
    for (const Type& t : product_types)
      products.push_back(body.param(NewBody::kXs, cat("p", products.size()), t, {}));
    for (size_t i = l.first_invariant(); i < l.n_operands(); ++i)
      args.push_back(body.param(NewBody::kInvariants, cat("i", i), c.in[i].type(), c.in[i]));
  }
};

// The pullback of one step, and its results: gradients before the step, sums with this step's
// share, gradients of xs. Returns the products as the step itself computes them.
std::vector<Var> write_reverse_step(Builder& g, Function forward, const ScanLayout& l,
                                    const ReverseParams& p, std::span<const ValueId> products) {
  for (ValueId v : products) forward.results.push_back({"", v});
  auto ys = inline_call(g, forward, p.args);
  const size_t n_results = ys.size() - products.size();
  const std::vector<Var> computed(ys.begin() + static_cast<std::ptrdiff_t>(n_results), ys.end());
  ys.resize(n_results);
  std::vector<Var> cts = p.dc;
  cts.insert(cts.end(), p.dy.begin(), p.dy.end());
  auto d = pullback(g, ys, cts, p.args);
  for (size_t i = 0; i < l.n_carry; ++i) {
    if (!p.dc[i].valid()) continue;
    if (p.ds[i].valid()) d[i] = d[i].valid() ? add(d[i], p.ds[i]) : p.ds[i];
    g.result(cat("dc", i), or_zeros(d[i], p.dc[i]));
  }
  for (size_t i = 0; i < l.n_invariants; ++i)
    if (const Var s = p.sum[i]; s.valid()) {
      const Var share = d[l.first_invariant() + i];
      g.result(cat("di", i), share.valid() ? add(s, share) : s);
    }
  for (size_t i = l.n_carry; i < l.first_invariant(); ++i)
    if (is_float(p.args[i].dtype())) g.result(cat("dx", i), or_zeros(d[i], p.args[i]));
  return computed;
}

}  // namespace

std::vector<Var> scan_vjp(Builder& b, const VjpCall& c) {
  const ScanLayout l(*c.call);
  const Function forward = c.call->region(0);  // a copy: the module grows below
  const auto products = carried_products(b.module(), forward, l, extents_from(*c.call, forward, 0));
  std::vector<Type> product_types;
  for (ValueId v : products) product_types.push_back(forward.type(v));
  NewBody body(b, "scan_grad");
  const ReverseParams p(body, c, l, result_types(forward), product_types);
  const auto computed = write_reverse_step(body.builder(), forward, l, p, products);
  auto made = body.finish();
  std::vector<Var> grads(c.in.size());
  if (!made.ok()) return b.fail(made.error()), grads;
  for (size_t i = 0; i < products.size(); ++i)
    substitute(*made, computed[i].id(), p.products[i].id());
  const auto live = live_params(*made);
  std::vector<bool> carries, values;
  for (size_t i = 0; i < l.n_carry; ++i) carries.push_back(live[p.args[i].id()]);
  for (const Var& v : p.products) values.push_back(live[v.id()]);
  const Saved saved(b, c, l, products, carries, values);
  for (size_t i = 0; i < l.n_carry; ++i) body.set_outer(p.args[i], saved.carries[i]);
  for (size_t i = 0; i < products.size(); ++i) body.set_outer(p.products[i], saved.products[i]);
  const auto out = body.emit(
      b, *c.call->op,
      {{"reverse", !c.attrs().flag("reverse")}, {"length", std::vector<Dim>{l.length}}}, *made);
  if (b.failed()) return grads;
  size_t k = 0;
  for (size_t i = 0; i < l.n_carry; ++i)
    if (p.dc[i].valid()) grads[i] = out[k++];
  for (size_t i = 0; i < l.n_invariants; ++i)
    if (p.sum[i].valid()) grads[l.first_invariant() + i] = out[k++];
  for (size_t i = l.n_carry; i < l.first_invariant(); ++i)
    if (is_float(c.in[i].dtype())) grads[i] = out[k++];
  return grads;
}

std::vector<Var> scan_jvp(Builder& b, const JvpCall& c) {
  const ScanLayout l(*c.call);
  const Function forward = c.call->region(0);
  NewBody body(b, "scan_jvp");
  Builder& g = body.builder();
  std::vector<Var> args, active, tangents;
  const std::pair<size_t, size_t> ranges[] = {
      {0, l.n_carry}, {l.n_carry, l.first_invariant()}, {l.first_invariant(), l.n_operands()}};
  for (int group = 0; group < 3; ++group) {
    const auto [begin, end] = ranges[group];
    const auto kind = static_cast<NewBody::Group>(group);
    for (size_t i = begin; i < end; ++i)
      args.push_back(body.param(kind, cat("v", i), l.inner(i, c.in[i].type()), c.in[i]));
    for (size_t i = begin; i < end; ++i) {
      // A carry's tangent may become nonzero on the way.
      if (!is_float(args[i].dtype()) || (group > 0 && !c.tangent[i].valid())) continue;
      active.push_back(args[i]);
      tangents.push_back(
          body.param(kind, cat("t", i), args[i].type(), or_zeros(c.tangent[i], c.in[i])));
    }
  }
  const auto ys = inline_call(g, forward, args);
  const auto dys = pushforward(g, ys, active, tangents);
  std::vector<int64_t> place(ys.size(), -1);  // of each result's tangent among the new results
  const std::pair<size_t, size_t> halves[] = {{0, l.n_carry}, {l.n_carry, ys.size()}};
  for (const auto& [begin, end] : halves) {
    for (size_t i = begin; i < end; ++i) g.result(cat("y", i), ys[i]);
    for (size_t i = begin; i < end; ++i)
      if (is_float(ys[i].dtype())) {
        place[i] = static_cast<int64_t>(g.function().results.size());
        g.result(cat("dy", i), or_zeros(dys[i], ys[i]));
      }
  }
  std::vector<Var> t(c.out.size());
  const auto made = body.finish();
  if (!made.ok()) return b.fail(made.error()), t;
  std::vector<int64_t> saves;
  for (int64_t s : l.saves)
    if (place[s] >= 0) saves.push_back(place[s]);
  Attrs attrs = c.attrs();
  attrs.set("saves", saves);
  const auto out = body.emit(b, *c.call->op, std::move(attrs), *made);
  if (b.failed()) return t;
  for (size_t i = 0; i < ys.size(); ++i)
    if (place[i] >= 0) t[i] = out[place[i]];
  size_t next = out.size() - saves.size();
  for (size_t i = 0; i < l.saves.size(); ++i)
    if (place[l.saves[i]] >= 0) t[ys.size() + i] = out[next++];
  return t;
}

}  // namespace tegula
