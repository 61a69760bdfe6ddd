// The gradient that goes around a norm is added to the norm's own while that is formed: one pass
// over the residual stream's gradient less. f32 only, where the sum rounds as the add did: bits
// stay.
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

class NormResidual {
 public:
  NormResidual(Function& f, const PassOptions& options)
      : f_(f), options_(options), edit_(f), uses_(f.use_counts()) {}

  bool run() {
    for (NodeId n = 0; n < f_.nodes.size(); ++n)
      if (f_.nodes[n].op == &add_op && (join(n, 0) || join(n, 1))) edit_.drop(n);
    if (!edit_.any()) return false;
    edit_.apply();
    return true;
  }

 private:
  // Is operand k of the add a norm's gradient, and the other one there when that is formed? Then
  // the norm adds it.
  bool join(NodeId add, size_t k) {
    const ValueId dx = f_.nodes[add].inputs[k], other = f_.nodes[add].inputs[1 - k];
    const NodeId at = f_.values[dx].node;
    if (at == kNone || uses_[dx] != 1) return false;
    Node& norm = f_.nodes[at];
    if (norm.op != &layer_norm_bwd_op || dx != norm.output(0) || norm.attrs.flag("residual") ||
        f_.type(dx).dtype != DType::kF32 || norm.phase != f_.nodes[add].phase ||
        !(f_.type(other) == f_.type(dx)))
      return false;
    const NodeId from = f_.values[other].node;
    if (from != kNone && from >= at) return false;
    std::vector<Type> in = f_.input_types(norm);
    const std::vector<Type> out = f_.output_types(norm);
    in.push_back(f_.type(other));
    Attrs attrs = norm.attrs;
    attrs.set("residual", true);
    const OpCall call{norm.op, &attrs, in, out, nullptr, {}};
    if (!options_.asked().has_kernel(call)) return false;
    norm.attrs = std::move(attrs);
    norm.inputs.push_back(other);
    edit_.replace(f_.nodes[add].output(), dx);
    return true;
  }

  Function& f_;
  const PassOptions& options_;
  Edit edit_;
  std::vector<uint32_t> uses_;
};

Result<bool> run(Module&, Function& f, const PassOptions& options) {
  return NormResidual(f, options).run();
}

}  // namespace

extern const PassDef norm_residual_pass = {
    .name = "norm_residual",
    .doc = "the gradient around a norm is added where the norm's own is formed",
    .phase = PassPhase::kFuse,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
