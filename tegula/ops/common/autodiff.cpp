#include "tegula/ops/autodiff.h"

#include "tegula/ops/math.h"

namespace tegula {

namespace {

// One use of an op, copied out of the function: rules emit nodes, which moves the function's own.
struct Use {
  Node node;
  std::vector<Type> in_types, out_types;
  std::vector<Var> in, out;
  OpCall call;

  Use(Builder& b, NodeId id) : node(b.function().nodes[id]) {
    for (ValueId v : node.inputs) in.emplace_back(&b, v), in_types.push_back(b.type(v));
    for (uint32_t i = 0; i < node.n_outputs; ++i)
      out.emplace_back(&b, node.output(i)), out_types.push_back(b.type(node.output(i)));
    call = {node.op, &node.attrs, in_types, out_types, &b.module(), node.regions};
  }
};

bool is_float_value(Builder& b, ValueId v) { return is_float(b.type(v).dtype); }

// State of a sweep: per value, is it active (a float that depends on an x), and its derivative.
struct Sweep {
  Builder& b;
  std::vector<bool> active;
  std::vector<Var> deriv;

  explicit Sweep(Builder& builder) : b(builder) { grow(); }
  void grow() {
    active.resize(b.function().values.size(), false);
    deriv.resize(b.function().values.size());
  }
  void mark(NodeId begin, NodeId end) {
    grow();
    for (NodeId n = begin; n < end; ++n) {
      const Node& node = b.function().nodes[n];
      bool any = false;
      for (ValueId v : node.inputs) any |= active[v];
      if (!any) continue;
      for (uint32_t i = 0; i < node.n_outputs; ++i)
        active[node.output(i)] = is_float_value(b, node.output(i));
    }
  }
  void accumulate(ValueId v, Var d) {
    if (!d.valid()) return;
    grow();
    deriv[v] = deriv[v].valid() ? add(deriv[v], d) : d;
  }
  bool has_any(const Use& u) const {
    for (const Var& v : u.out)
      if (v.id() < deriv.size() && deriv[v.id()].valid()) return true;
    return false;
  }
};

Error no_rule(const Node& n) {
  return unsupported(cat(n.op->name,
                         ": has no derivative; stop the gradient before it or give the op a "
                         "decomposition"),
                     n.origin.loc);
}

// The decomposition's nodes; its outputs are the op's.
std::vector<Var> decomposed(Builder& b, const Use& u, NodeId& begin, NodeId& end) {
  begin = static_cast<NodeId>(b.function().nodes.size());
  auto outs = u.node.op->decompose(b, u.call, u.in);
  end = static_cast<NodeId>(b.function().nodes.size());
  return outs;
}

void reverse(Sweep& s, NodeId begin, NodeId end) {
  for (NodeId n = end; n-- > begin;) {
    const Node& peek = s.b.function().nodes[n];
    bool wanted = false;
    for (ValueId v : peek.inputs) wanted |= s.active[v];
    if (!wanted) continue;
    const Use u(s.b, n);
    s.grow();
    if (!s.has_any(u)) continue;
    s.b.set_origin(u.node.origin);
    std::vector<Var> grads;
    for (const Var& v : u.out) grads.push_back(s.deriv[v.id()]);
    bool has_rule = false;
    if (u.node.op->vjp) {
      // A rule may assume gradient 0; further ones are zeros where absent.
      for (size_t i = 0; i < grads.size(); ++i)
        if (!grads[i].valid() && is_float(u.out_types[i].dtype)) grads[i] = zeros_like(u.out[i]);
      const auto in = u.node.op->vjp(s.b, {&u.call, u.in, u.out, grads});
      if (s.b.failed()) return;  // as below
      has_rule = !in.empty();
      for (size_t k = 0; k < u.in.size() && k < in.size(); ++k)
        if (s.active[u.in[k].id()]) s.accumulate(u.in[k].id(), in[k]);
    }
    if (has_rule) continue;
    if (u.node.op->decompose) {
      NodeId from, to;
      const auto outs = decomposed(s.b, u, from, to);
      if (s.b.failed()) return;  // an op may refuse these sizes
      s.mark(from, to);
      for (size_t i = 0; i < grads.size(); ++i)
        if (grads[i].valid()) s.accumulate(outs[i].id(), grads[i]);
      reverse(s, from, to);
    } else {
      s.b.fail(no_rule(u.node));
      return;
    }
    s.grow();
  }
}

// Σ_i of rule(i) over the operands that have a tangent.
Var sum_over_tangents(const std::vector<Var>& tangents, auto&& rule) {
  Var total;
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].valid()) continue;
    const Var t = rule(i);
    if (t.valid()) total = total.valid() ? add(total, t) : t;
  }
  return total;
}

void forward(Sweep& s, NodeId begin, NodeId end);

std::vector<Var> node_tangents(Sweep& s, const Use& u, const std::vector<Var>& t) {
  const OpDef& op = *u.node.op;
  bool passes = false;
  if (op.jvp) {
    auto tangents = op.jvp(s.b, {&u.call, u.in, u.out, t});
    if (s.b.failed()) return std::vector<Var>(u.out.size());
    if (!tangents.empty()) return tangents;
    passes = true;
  }
  if (op.is_elementwise && op.vjp && !passes) {
    // The Jacobian is diagonal, hence symmetric: the reverse rule applies it.
    return {sum_over_tangents(t, [&](size_t i) {
      const Var g[] = {t[i].dtype() == u.out_types[0].dtype ? t[i]
                                                            : cast(t[i], u.out_types[0].dtype)};
      Var r = op.vjp(s.b, {&u.call, u.in, u.out, g})[i];
      return r.valid() ? cast(r, u.out_types[0].dtype) : r;
    })};
  }
  if (op.is_linear && !passes) {
    std::vector<Var> in;
    for (size_t i = 0; i < u.in.size(); ++i)
      in.push_back(t[i].valid() ? t[i] : zeros_like(u.in[i]));
    return s.b.emit_n(op, u.node.attrs, in, u.node.regions);
  }
  if (op.is_multilinear && !passes) {
    return {sum_over_tangents(t, [&](size_t i) {
      auto in = u.in;
      in[i] = t[i];
      return s.b.emit_n(op, u.node.attrs, in, u.node.regions)[0];
    })};
  }
  if (op.decompose) {
    NodeId from, to;
    const auto outs = decomposed(s.b, u, from, to);
    if (s.b.failed()) return std::vector<Var>(u.out.size());
    s.mark(from, to);
    forward(s, from, to);
    s.grow();
    std::vector<Var> tangents;
    for (const Var& o : outs) tangents.push_back(s.deriv[o.id()]);
    return tangents;
  }
  // Views and pass-through control (barrier): the reverse rule cannot give the forward one.
  s.b.fail(no_rule(u.node));
  return std::vector<Var>(u.out.size());
}

void forward(Sweep& s, NodeId begin, NodeId end) {
  for (NodeId n = begin; n < end; ++n) {
    const Node& peek = s.b.function().nodes[n];
    bool any = false;
    for (ValueId v : peek.inputs) any |= s.active[v];
    if (!any) continue;
    const Use u(s.b, n);
    s.grow();
    s.b.set_origin(u.node.origin);
    std::vector<Var> t;
    for (const Var& v : u.in) t.push_back(s.deriv[v.id()]);
    bool float_out = false;
    for (const Type& type : u.out_types) float_out |= is_float(type.dtype);
    if (!float_out) continue;
    const auto out = node_tangents(s, u, t);
    s.grow();
    for (size_t i = 0; i < u.out.size() && i < out.size(); ++i)
      if (out[i].valid()) s.deriv[u.out[i].id()] = out[i];
    if (s.b.failed()) return;
  }
}

}  // namespace

namespace {
// Whether one of the Vars is not b's, or the lists do not fit; says so. In the second of two lists
// an empty Var means zero.
bool reject(Builder& b, std::string_view what, std::span<const Var> xs,
            std::initializer_list<std::span<const Var>> pair) {
  for (const Var& x : xs)
    if (b.rejects(x, cat(what, ": an x"))) return true;
  if (pair.size() != 2) return b.failed();
  const auto of = pair.begin()[0], given = pair.begin()[1];
  if (of.size() != given.size())
    b.fail(
        invalid_argument(cat(what, ": ", given.size(), " derivatives for ", of.size(), " values")));
  for (size_t i = 0; i < of.size() && !b.failed(); ++i)
    if (!b.rejects(of[i], cat(what, ": a y")) && given[i].valid() &&
        !b.rejects(given[i], cat(what, ": a derivative")) && !(given[i].shape() == of[i].shape()))
      b.fail(invalid_argument(
          cat(what, ": the derivative of ", of[i].type(), " is ", given[i].type())));
  return b.failed();
}
}  // namespace

std::vector<Var> pullback(Builder& b, std::span<const Var> ys, std::span<const Var> cts,
                          std::span<const Var> xs) {
  std::vector<Var> grads(xs.size());
  if (reject(b, "pullback", xs, {ys, cts})) return grads;
  const Phase phase = b.phase();
  b.set_phase(Phase::kBackward);
  const auto end = static_cast<NodeId>(b.function().nodes.size());
  Sweep s(b);
  for (const Var& x : xs) s.active[x.id()] = is_float(x.dtype());
  s.mark(0, end);
  for (size_t i = 0; i < ys.size(); ++i)
    if (cts[i].valid()) s.accumulate(ys[i].id(), cts[i]);
  reverse(s, 0, end);
  b.set_origin(std::nullopt);
  b.set_phase(phase);
  if (b.failed()) return grads;
  s.grow();
  for (size_t i = 0; i < xs.size(); ++i) grads[i] = s.deriv[xs[i].id()];
  return grads;
}

std::vector<Var> grad(Var loss, std::span<const Var> xs) {
  Builder* b = &loss.builder();
  for (size_t i = 0; i < xs.size() && !loss.valid(); ++i)
    if (xs[i].valid()) b = &xs[i].builder();
  b->rejects(loss, "grad: the loss");
  if (!b->failed() && loss.rank() != 0)
    b->fail(invalid_argument(cat("grad: the loss must be a scalar, is ", loss.type())));
  const Var one[] = {constant(*b, 1, loss.dtype())};
  auto g = pullback(*b, std::span(&loss, 1), one, xs);
  for (size_t i = 0; i < xs.size(); ++i)
    if (!g[i].valid()) g[i] = b->failed() ? b->fail(b->error()) : zeros_like(xs[i]);
  return g;
}

std::vector<Var> pushforward(Builder& b, std::span<const Var> ys, std::span<const Var> xs,
                             std::span<const Var> tangents) {
  std::vector<Var> out(ys.size());
  if (reject(b, "pushforward", ys, {xs, tangents})) return out;
  const auto end = static_cast<NodeId>(b.function().nodes.size());
  Sweep s(b);
  for (size_t i = 0; i < xs.size(); ++i) {
    s.active[xs[i].id()] = tangents[i].valid();
    s.deriv[xs[i].id()] = tangents[i];
  }
  s.mark(0, end);
  forward(s, 0, end);
  b.set_origin(std::nullopt);
  if (b.failed()) return out;
  s.grow();
  for (size_t i = 0; i < ys.size(); ++i) out[i] = s.deriv[ys[i].id()];
  return out;
}

std::vector<Var> inline_call(Builder& b, const Function& f, std::span<const Var> args) {
  if (args.size() != f.params.size())
    b.fail(invalid_argument(
        cat("inline_call: ", f.name, " takes ", f.params.size(), " arguments, got ", args.size())));
  for (size_t i = 0; i < args.size() && !b.failed(); ++i)
    if (!b.rejects(args[i], "inline_call: an argument") &&
        !(args[i].type() == f.type(f.params[i].value)))
      b.fail(invalid_argument(cat("inline_call: argument ", i, " of ", f.name, " is ",
                                  args[i].type(), ", takes ", f.type(f.params[i].value))));
  if (b.failed()) return std::vector<Var>(f.results.size(), b.fail(b.error()));
  std::vector<ValueId> map(f.values.size(), kNone);
  for (size_t i = 0; i < f.params.size(); ++i) map[f.params[i].value] = args[i].id();
  for (const Node& n : f.nodes) {
    std::vector<ValueId> in;
    for (ValueId v : n.inputs) in.push_back(map[v]);
    const auto types = f.output_types(n);
    const ValueId first = b.append(n, std::move(in), types);
    for (uint32_t i = 0; i < n.n_outputs; ++i) map[n.output(i)] = first + i;
  }
  std::vector<Var> out;
  for (const Output& r : f.results) out.emplace_back(&b, map[r.value]);
  return out;
}

namespace {
// Shared by both function-level forms: f inlined into a new builder, with extra parameters.
struct Inlined {
  std::vector<Var> params, results;
};
Inlined inline_all(Builder& b, const Function& f) {
  Inlined in;
  for (const Param& p : f.params) in.params.push_back(b.param(p.name, f.type(p.value), p.role));
  in.results = inline_call(b, f, in.params);
  return in;
}
}  // namespace

Result<FuncId> vjp_function(Module& module, FuncId id) {
  TEGULA_TRY(check_function(module, id, "vjp_function"));
  const Function f = module[id];
  Builder b(module, f.name + ".vjp");
  const Inlined in = inline_all(b, f);
  std::vector<Var> cts, xs;
  for (size_t i = 0; i < in.results.size(); ++i) {
    const Type& t = in.results[i].type();
    cts.push_back(is_float(t.dtype) ? b.param("ct." + f.results[i].name, t) : Var());
  }
  for (const Var& p : in.params)
    if (is_float(p.dtype())) xs.push_back(p);
  auto grads = pullback(b, in.results, cts, xs);
  if (b.failed()) return b.error();
  for (size_t i = 0; i < in.results.size(); ++i) b.result(f.results[i].name, in.results[i]);
  for (size_t i = 0; i < xs.size(); ++i)
    b.result("grad." + b.function().params[b.function().values[xs[i].id()].index].name,
             grads[i].valid() ? grads[i] : zeros_like(xs[i]));
  return b.finish_into_module();
}

Result<FuncId> jvp_function(Module& module, FuncId id) {
  TEGULA_TRY(check_function(module, id, "jvp_function"));
  const Function f = module[id];
  Builder b(module, f.name + ".jvp");
  const Inlined in = inline_all(b, f);
  std::vector<Var> xs, tangents;
  for (size_t i = 0; i < in.params.size(); ++i)
    if (is_float(in.params[i].dtype())) {
      xs.push_back(in.params[i]);
      tangents.push_back(b.param("tangent." + f.params[i].name, in.params[i].type()));
    }
  const auto out = pushforward(b, in.results, xs, tangents);
  if (b.failed()) return b.error();
  for (size_t i = 0; i < in.results.size(); ++i) b.result(f.results[i].name, in.results[i]);
  for (size_t i = 0; i < in.results.size(); ++i)
    if (is_float(in.results[i].dtype()))
      b.result("tangent." + f.results[i].name, out[i].valid() ? out[i] : zeros_like(in.results[i]));
  return b.finish_into_module();
}

}  // namespace tegula
