#include "tegula/passes/peephole.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/element.h"
#include "tegula/ops/table.h"

namespace tegula {

std::optional<double> uniform_value(const Function& f, ValueId v) {
  for (const Node* n = f.producer(v); n; n = f.producer(v)) {
    if (n->op == &constant_op) {
      const AttrValue* value = n->attrs.find("value");
      if (!value) return std::nullopt;
      return rounded_to(n->attrs.dtype("dtype"), value->get<double>());
    }
    if (!n->op->is_view || n->inputs.size() != 1 || n->op->has_effect) return std::nullopt;
    v = n->inputs[0];
  }
  return std::nullopt;
}

std::optional<double> Peephole::uniform(Var v) { return uniform_value(fn(), v.id()); }

Var Peephole::simplified(NodeId n, std::span<const Rule> rules) {
  const OpDef* op = f_.nodes[n].op;
  const auto fits = [&](const Rule& r) { return r.op ? r.op == op : op->is_elementwise; };
  auto rule = std::find_if(rules.begin(), rules.end(), fits);
  if (rule == rules.end() || f_.nodes[n].n_outputs != 1) return {};
  // Where a rule cannot move it by adding nodes.
  Node node = std::move(f_.nodes[n]);
  builder_.set_origin(node.origin);
  builder_.set_phase(node.phase);
  Var stand_in;
  for (; rule != rules.end() && !stand_in.valid(); ++rule)
    if (fits(*rule)) stand_in = rule->apply(*this, node);
  f_.nodes[n] = std::move(node);
  return stand_in;
}

bool Peephole::sweep(std::span<const Rule> rules) {
  const auto n_nodes = static_cast<NodeId>(f_.nodes.size());
  size_t n_known = n_nodes;
  bool changed = false;
  for (NodeId n = 0; n < n_nodes; ++n) {
    const Var stand_in = simplified(n, rules);
    if (f_.nodes.size() > n_known) edit_.put_before(n), n_known = f_.nodes.size();
    if (stand_in.valid()) {
      edit_.replace(f_.nodes[n].output(), stand_in.id());
      edit_.drop(n);
      changed = true;
    } else {
      for (ValueId& v : f_.nodes[n].inputs) v = edit_.resolve(v);
    }
  }
  if (edit_.any() && !builder_.failed()) edit_.apply();
  return changed;
}

Result<bool> Peephole::rewrite(Module& module, Function& f, std::span<const Rule> rules) {
  Builder builder(module, "");
  std::swap(builder.function(), f);
  bool changed = false;
  // Each sweep ends with something simpler; the bound only guards against two rules that disagree.
  for (int i = 0; i < 16; ++i) {
    const bool again = Peephole(builder).sweep(rules);
    if (builder.failed()) return builder.error();
    if (!again) {
      std::swap(builder.function(), f);
      return changed;
    }
    changed = true;
  }
  return internal_error("two rules undo each other");
}

}  // namespace tegula
