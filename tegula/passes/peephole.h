// Peephole: rebuilds a function node by node and asks a list of rules to put something simpler in a
// node's place, until none has anything to say.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tegula/ir/builder.h"

namespace tegula {

class Peephole {
 public:
  // What stands for the node's only result, or an invalid Var if the rule does not apply.
  using Apply = Var (*)(Peephole&, const Node& node);
  struct Rule {
    const OpDef* op;  // null: any op with one result
    Apply apply;
  };

  // True: f changed.
  static Result<bool> rewrite(Module& module, Function& f, std::span<const Rule> rules);

  // For rules. `node` is of the old function; everything else of the new one, where its operands
  // have been simplified already.
  Builder& builder() { return rw_.builder(); }
  const Function& fn() { return rw_.builder().function(); }
  Var in(const Node& node, size_t k) { return rw_.at(node.inputs[k]); }
  const Type& result_type(const Node& node) const { return old_.type(node.output()); }
  // Is operand k of the old node a result of this op that nothing else reads?
  bool is_only_reader(const Node& node, size_t k, const OpDef& op) const {
    const Node* made = old_.producer(node.inputs[k]);
    return made && made->op == &op && uses_[node.inputs[k]] == 1;
  }

  // The node that makes v if it is of this op, else null. Valid until the next emission.
  const Node* made_by(Var v, const OpDef& op) {
    const Node* n = fn().producer(v.id());
    return n && n->op == &op ? n : nullptr;
  }
  // An operand of a node of the new function.
  Var operand(const Node& made, size_t k) { return Var(&builder(), made.inputs[k]); }
  // The value that every element of v has, if v is a constant seen through views.
  std::optional<double> uniform(Var v);
  bool is_uniform(Var v, double value) {
    const auto u = uniform(v);
    return u && *u == value;
  }

 private:
  Peephole(Module& module, Function& old) : old_(old), rw_(module, old), uses_(old.use_counts()) {}
  bool sweep(std::span<const Rule> rules);

  Function& old_;
  Rewriter rw_;
  std::vector<uint32_t> uses_;
};

// The value that every element of v has, if v is a constant seen through views.
std::optional<double> uniform_value(const Function& f, ValueId v);

}  // namespace tegula
