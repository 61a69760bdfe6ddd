#include "tegula/passes/peephole.h"

#include "tegula/base/element.h"
#include "tegula/ops/table.h"

namespace tegula {

std::optional<double> uniform_value(const Function& f, ValueId v) {
  for (const Node* n = f.producer(v); n; n = f.producer(v)) {
    if (n->op == &constant_op) {
      const AttrValue* value = n->attrs.find("value");
      if (!value) return std::nullopt;
      return rounded_to(n->attrs.dtype("dtype"), std::get<double>(*value));
    }
    if (!n->op->is_view || n->inputs.size() != 1 || n->op->has_effect) return std::nullopt;
    v = n->inputs[0];
  }
  return std::nullopt;
}

std::optional<double> Peephole::uniform(Var v) { return uniform_value(fn(), v.id()); }

bool Peephole::sweep(std::span<const Rule> rules) {
  bool changed = false;
  for (Node& node : old_.nodes) {
    Var stand_in;
    if (node.n_outputs == 1) {
      builder().set_loc(node.loc);
      builder().set_phase(node.phase);
      for (const Rule& r : rules) {
        if (r.op && r.op != node.op) continue;
        stand_in = r.apply(*this, node);
        if (stand_in.valid()) break;
      }
    }
    if (stand_in.valid()) {
      rw_.bind(node.output(), stand_in);
      changed = true;
    } else {
      rw_.take(node);
    }
  }
  return changed;
}

Result<bool> Peephole::rewrite(Module& module, Function& f, std::span<const Rule> rules) {
  bool changed = false;
  // Each sweep ends with something simpler; the bound only guards against two rules that disagree.
  for (int i = 0; i < 16; ++i) {
    Peephole p(module, f);
    const bool again = p.sweep(rules);
    Function out = TEGULA_TRY(p.rw_.finish());
    f = std::move(out);
    if (!again) return changed;
    changed = true;
  }
  return internal_error("two rules undo each other");
}

}  // namespace tegula
