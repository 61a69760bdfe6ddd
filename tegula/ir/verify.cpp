#include "tegula/ir/verify.h"

#include <algorithm>
#include <set>

#include "tegula/base/sizes.h"

namespace tegula {

namespace {

class Verifier {
 public:
  // `seen`: functions whose regions are known to be in order, of this module.
  Verifier(const Module& m, const Function& f, std::set<FuncId>& seen)
      : m_(m), f_(f), seen_(seen) {}

  Status run() {
    TEGULA_TRY(values());
    for (node_ = 0; node_ < f_.nodes.size(); ++node_) TEGULA_TRY(node(f_.nodes[node_]));
    node_ = kNone;
    TEGULA_TRY(results());
    TEGULA_TRY(state());
    return f_.shardings.empty() ? Status() : shardings();
  }

 private:
  template <class... Args>
  Error violation(VerifyRule rule, const Args&... what) const {
    std::string at = cat(kVerifyRules[static_cast<size_t>(rule)], ": function ", f_.name);
    const Node* n = node_ == kNone ? nullptr : &f_.nodes[node_];
    if (n) at += cat(", node ", node_, n->op ? cat(" (", n->op->name, ")") : "");
    return internal_error(cat(at, ": ", what...),
                          n ? n->origin.loc : std::source_location::current());
  }

  Status dim(const Dim& d, std::string_view of) const {
    if (d.bound() < 0 || (d.is_const() && d.scale != 0))
      return violation(VerifyRule::kSymbols, "a dim of ", of, " is ", d.bound());
    if (d.is_const()) return {};
    if (d.symbol < 0 || static_cast<size_t>(d.symbol) >= m_.symbols.size())
      return violation(VerifyRule::kSymbols, "a dim of ", of, " has symbol ", d.symbol,
                       ", the module has ", m_.symbols.size());
    const Symbol& s = m_.symbols[static_cast<size_t>(d.symbol)];
    if (d.symbol_bound != s.bound)
      return violation(VerifyRule::kSymbols, "a dim of ", of, " bounds ", s.name, " by ",
                       d.symbol_bound, ", the module by ", s.bound);
    return {};
  }

  Status values() const {
    for (ValueId v = 0; v < f_.values.size(); ++v) {
      const Value& value = f_.values[v];
      const Shape& shape = value.type.shape;
      for (const Dim& d : shape) TEGULA_TRY(dim(d, cat("value ", v)));
      if (auto st = check_sizes(cat("value ", v), shape); !st.ok())
        return violation(VerifyRule::kSymbols, st.error().message);
      if (value.node == kNone) {
        if (value.index >= f_.params.size() || f_.params[value.index].value != v)
          return violation(VerifyRule::kValues, "value ", v, " is parameter ", value.index,
                           ", which it is not");
      } else if (value.node >= f_.nodes.size() || value.index >= f_.nodes[value.node].n_outputs ||
                 f_.nodes[value.node].output(value.index) != v) {
        return violation(VerifyRule::kValues, "value ", v, " is result ", value.index, " of node ",
                         value.node, ", which it is not");
      }
    }
    for (size_t p = 0; p < f_.params.size(); ++p) {
      const ValueId v = f_.params[p].value;
      if (v >= f_.values.size() || f_.values[v].node != kNone || f_.values[v].index != p)
        return violation(VerifyRule::kValues, "parameter ", p, " (", f_.params[p].name,
                         ") is value ", v, ", which is not its own");
    }
    return {};
  }

  Status node(const Node& n) const {
    if (!n.op) return violation(VerifyRule::kTypes, "it has no op");
    for (uint32_t r = 0; r < n.n_outputs; ++r) {
      const ValueId v = n.output(r);
      if (n.first_output == kNone || v >= f_.values.size() || f_.values[v].node != node_ ||
          f_.values[v].index != r)
        return violation(VerifyRule::kValues, "result ", r, " is value ", v,
                         ", which is not its own");
    }
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const ValueId v = n.inputs[k];
      if (v >= f_.values.size())
        return violation(VerifyRule::kDominance, "operand ", k, " is value ", v, " of ",
                         f_.values.size());
      if (f_.values[v].node != kNone && f_.values[v].node >= node_)
        return violation(VerifyRule::kDominance, "operand ", k, " is value ", v,
                         ", which comes later");
    }
    for (FuncId r : n.regions) {
      std::set<FuncId> above;
      TEGULA_TRY(region(r, above));
    }
    for (const auto& [name, value] : n.attrs)
      if (const auto* dims = value.get_if<std::vector<Dim>>())
        for (const Dim& d : *dims) TEGULA_TRY(dim(d, cat("attribute ", name)));
    const auto in = f_.input_types(n), have = f_.output_types(n);
    auto want = infer({n.op, &n.attrs, in, {}, &m_, n.regions});
    if (!want.ok()) return violation(VerifyRule::kTypes, want.error().message);
    if (*want != have)
      return violation(VerifyRule::kTypes, "its results are ", have, ", infer() gives ", *want);
    return {};
  }

  Status region(FuncId r, std::set<FuncId>& above) const {
    if (r >= m_.functions.size())
      return violation(VerifyRule::kRegions, "region ", r, ", the module has ", m_.functions.size(),
                       " functions");
    if (above.contains(r))
      return violation(VerifyRule::kRegions, "region ", m_[r].name, " holds itself");
    if (!seen_.insert(r).second) return {};  // many nodes may share it
    above.insert(r);
    for (const Node& n : m_[r].nodes)
      for (FuncId inner : n.regions) TEGULA_TRY(region(inner, above));
    above.erase(r);
    return {};
  }

  Status results() const {
    for (const Output& r : f_.results)
      if (r.value >= f_.values.size())
        return violation(VerifyRule::kResults, "result ", r.name, " is value ", r.value, " of ",
                         f_.values.size());
    std::vector<int> taken_by(f_.results.size(), -1);
    for (size_t p = 0; p < f_.params.size(); ++p) {
      const Param& from = f_.params[p];
      if (from.donated_to == -1) continue;
      if (from.donated_to < 0 || static_cast<size_t>(from.donated_to) >= f_.results.size())
        return violation(VerifyRule::kDonations, "parameter ", from.name, " is donated to result ",
                         from.donated_to, " of ", f_.results.size());
      const auto to = static_cast<size_t>(from.donated_to);
      const Output& r = f_.results[to];
      if (!(f_.type(from.value) == f_.type(r.value)))
        return violation(VerifyRule::kDonations, "parameter ", from.name, " is ",
                         f_.type(from.value), ", its result ", r.name, " is ", f_.type(r.value));
      if (taken_by[to] >= 0)
        return violation(VerifyRule::kDonations, "result ", r.name, " takes over ",
                         f_.params[static_cast<size_t>(taken_by[to])].name, " and ", from.name);
      taken_by[to] = static_cast<int>(p);
    }
    return {};
  }

  Status state() const {
    std::set<std::string_view> names;
    for (size_t p = 0; p < f_.params.size(); ++p) {
      const Param& param = f_.params[p];
      if (param.role == Role::kInput) continue;
      if (param.name.empty())
        return violation(VerifyRule::kState, "parameter ", p, " persists and has no name");
      if (!names.insert(param.name).second)
        return violation(VerifyRule::kState, "two parameters that persist are named ", param.name);
    }
    return {};
  }

  Status shardings() {
    TEGULA_TRY(mesh());
    if (f_.shardings.size() > f_.values.size())
      return violation(VerifyRule::kSharding, "it is said of ", f_.shardings.size(),
                       " values where they lie, it has ", f_.values.size());
    for (ValueId v = 0; v < f_.shardings.size(); ++v) {
      const Sharding* s = f_.sharding(v);
      if (!s) continue;
      node_ = f_.values[v].node;
      const auto wrong = [&](const auto&... what) {
        return violation(VerifyRule::kSharding, "value ", v, ", ", f_.type(v), " ",
                         to_text(m_.mesh, *s), ": ", what...);
      };
      if (auto st = check_sharding(m_.mesh, f_.type(v).shape, *s); !st.ok())
        return wrong(st.error().message);
      for (size_t a = 0; a < s->size(); ++a)
        if ((*s)[a].is_pending() && !may_pend(v, a))
          return wrong("over the ", m_.mesh.axes[a].size, " ranks of ", m_.mesh.axes[a].name,
                       node_ == kNone
                           ? " a parameter pends, which nobody would join: it may be split"
                           : " it pends, but the op makes no such parts of a factor that they "
                             "divide, nor does an operand pend: its parts lie side by side, or it "
                             "is whole");
    }
    node_ = kNone;
    return {};
  }

  Status mesh() const {
    if (m_.mesh.axes.empty())
      return violation(VerifyRule::kSharding, "values lie on a mesh and there is none: set ",
                       "Module::mesh");
    auto again = mesh_from_text(to_text(m_.mesh));
    if (!again.ok()) return violation(VerifyRule::kSharding, again.error().message);
    return {};
  }

  // Can the value be parts over an axis that pend?
  bool may_pend(ValueId v, size_t axis) const {
    const Value& value = f_.values[v];
    if (value.node == kNone) return false;
    const Node& n = f_.nodes[value.node];
    const Combine how = (*f_.sharding(v))[axis].combine;
    for (ValueId x : n.inputs) {
      const Sharding* s = f_.sharding(x);
      if (!s || ((*s)[axis].is_pending() && (*s)[axis].combine == how))
        if (passes_on(*n.op, how)) return true;
    }
    const auto in = f_.input_types(n), out = f_.output_types(n);
    const auto map = dim_map({n.op, &n.attrs, in, out, &m_, n.regions});
    if (!map.ok()) return false;
    for (size_t k = 0; k < map->factors.size(); ++k) {
      const Factor& factor = map->factors[k];
      if (map->combine[k][value.index] == how && !factor.whole && factor.size.is_const() &&
          factor.size.bound() % m_.mesh.axes[axis].size == 0)
        return true;
    }
    return false;
  }
  // Is what the op makes of parts a part of what it makes of the whole?
  static bool passes_on(const OpDef& op, Combine how) {
    constexpr std::string_view kOfSums[] = {"add", "sub", "neg", "cast", "pad", "concat"};
    if (op.is_view) return true;
    if (how == Combine::kMax) return op.name == "max" || op.name == "reduce_max";
    return how == Combine::kSum &&
           (op.is_linear || std::ranges::find(kOfSums, op.name) != std::end(kOfSums));
  }

  const Module& m_;
  const Function& f_;
  std::set<FuncId>& seen_;
  NodeId node_ = kNone;
};

}  // namespace

Status verify(const Module& module, const Function& f) {
  std::set<FuncId> seen;
  return Verifier(module, f, seen).run();
}

Status verify(const Module& module) {
  std::set<FuncId> seen;
  for (const Function& f : module.functions) TEGULA_TRY(Verifier(module, f, seen).run());
  return {};
}

}  // namespace tegula
