// Peephole: goes over a function in place and asks a list of rules to put something simpler in a
// node's place, until none has anything to say.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tegula/ir/builder.h"
#include "tegula/passes/edit.h"

namespace tegula {

class Peephole {
 public:
  // The value that stands for the node's only result, or an invalid Var if the rule does not apply.
  using Apply = Var (*)(Peephole&, const Node& node);
  struct Rule {
    const OpDef* op;  // null: any elementwise op
    Apply apply;
  };

  // True: f changed.
  static Result<bool> rewrite(Module& module, Function& f, std::span<const Rule> rules);

  // For rules. What they emit stands before the node, whose operands have been simplified already.
  Builder& builder() { return builder_; }
  const Function& fn() const { return f_; }
  Var in(const Node& node, size_t k) { return Var(&builder_, edit_.resolve(node.inputs[k])); }
  // By value: the function's own copy moves when a node is added.
  Type result_type(const Node& node) const { return f_.type(node.output()); }
  // Is operand k, as it was, a result of this op that nothing else reads?
  bool is_only_reader(const Node& node, size_t k, const OpDef& op) const {
    const Node* made = f_.producer(node.inputs[k]);
    return made && made->op == &op && is_read_once(node.inputs[k]);
  }
  // Asks of a value that was there before this sweep.
  bool is_read_once(ValueId v) const { return v < uses_.size() && uses_[v] == 1; }

  // The node that makes v if it is of this op, else null. Valid until the next emission.
  const Node* made_by(Var v, const OpDef& op) {
    const Node* n = fn().producer(v.id());
    return n && n->op == &op ? n : nullptr;
  }
  // An operand of a node that made_by found.
  Var operand(const Node& made, size_t k) { return Var(&builder(), made.inputs[k]); }
  // The value that every element of v has, if v is a constant seen through views.
  std::optional<double> uniform(Var v);
  bool is_uniform(Var v, double value) {
    const auto u = uniform(v);
    return u && *u == value;
  }

 private:
  explicit Peephole(Builder& builder)
      : builder_(builder), f_(builder.function()), edit_(f_), uses_(f_.use_counts()) {}
  bool sweep(std::span<const Rule> rules);
  Var simplified(NodeId n, std::span<const Rule> rules);

  Builder& builder_;
  Function& f_;
  Edit edit_;
  std::vector<uint32_t> uses_;
};

// The value that every element of v has, if v is a constant seen through views.
std::optional<double> uniform_value(const Function& f, ValueId v);

}  // namespace tegula
