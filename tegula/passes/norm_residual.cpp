// The gradient that goes around a norm is added to the norm's own while that is formed: one pass
// over the residual stream's gradient less. f32 only, where the sum rounds as the add did: bits
// stay.
#include "tegula/ir/builder.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

class NormResidual {
 public:
  NormResidual(Module& module, const Function& f, const PassOptions& options)
      : f_(f), options_(options), rw_(module, f), add_(f.nodes.size(), kNone) {
    const auto uses = f.use_counts();
    for (NodeId n = 0; n < f.nodes.size(); ++n)
      if (f.nodes[n].op == &add_op)
        for (size_t k = 0; k < 2; ++k)
          if (uses[f.nodes[n].inputs[k]] == 1 && match(n, k)) break;
  }

  bool has_work() const { return has_work_; }

  Result<Function> run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n) {
      const Node& node = f_.nodes[n];
      if (rw_.has(node.output())) continue;  // an add that its norm has taken
      if (add_[n] == kNone) {
        rw_.clone(node);
        continue;
      }
      std::vector<Var> in;
      for (ValueId v : node.inputs) in.push_back(rw_.at(v));
      in.push_back(rw_.at(residual(n)));
      rw_.builder().set_loc(node.loc);
      rw_.builder().set_phase(node.phase);
      const auto out = rw_.builder().emit_n(*node.op, with_residual(node.attrs), in);
      rw_.bind(f_.nodes[add_[n]].output(), out[0]);
      for (uint32_t i = 1; i < node.n_outputs; ++i) rw_.bind(node.output(i), out[i]);
    }
    return rw_.finish();
  }

 private:
  static Attrs with_residual(Attrs attrs) {
    attrs.set("residual", true);
    return attrs;
  }
  // What the norm's gradient is added to.
  ValueId residual(NodeId norm) const {
    const Node& add = f_.nodes[add_[norm]];
    return add.inputs[add.inputs[0] == f_.nodes[norm].output(0) ? 1 : 0];
  }

  // Operand k of the add is a norm's gradient, and the other one is there when that is formed.
  bool match(NodeId add, size_t k) {
    const ValueId dx = f_.nodes[add].inputs[k], other = f_.nodes[add].inputs[1 - k];
    const NodeId at = f_.values[dx].node;
    if (at == kNone || f_.nodes[at].op != &layer_norm_bwd_op || dx != f_.nodes[at].output(0) ||
        f_.nodes[at].attrs.flag("residual") || f_.type(dx).dtype != DType::kF32 ||
        f_.nodes[at].phase != f_.nodes[add].phase || !(f_.type(other) == f_.type(dx)))
      return false;
    const NodeId from = f_.values[other].node;
    if (from != kNone && from >= at) return false;
    std::vector<Type> in = f_.input_types(f_.nodes[at]), out = f_.output_types(f_.nodes[at]);
    in.push_back(f_.type(other));
    const Attrs attrs = with_residual(f_.nodes[at].attrs);
    const OpCall call{&layer_norm_bwd_op, &attrs, in, out, nullptr, {}};
    if (options_.has_direct_kernel && !options_.has_direct_kernel(call, options_.kernel_context))
      return false;
    add_[at] = add;
    has_work_ = true;
    return true;
  }

  const Function& f_;
  const PassOptions& options_;
  Rewriter rw_;
  std::vector<NodeId> add_;  // of a norm's gradient: the add that it takes
  bool has_work_ = false;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  NormResidual pass(module, f, options);
  return rewrite_if_any(pass, f);
}

}  // namespace

extern const PassDef norm_residual_pass = {
    "norm_residual", "the gradient around a norm is added where the norm's own is formed", run};

}  // namespace tegula
