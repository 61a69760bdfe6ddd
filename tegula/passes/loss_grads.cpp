// A loss whose gradient does not wait for it is computed together with it, so that logits are
// formed once: linear_cross_entropy and its gradient become linear_cross_entropy_grads. On a CPU
// not under a budget of memory, since the kernel there keeps logits, and the gradient's alone does
// not. Keeps bits on one device, but for bf16 on Hopper, whose kernel of both forms exponentials
// and no logits.

#include "tegula/base/range.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

class LossGrads {
 public:
  LossGrads(Module& module, Function& f, const PassOptions& options)
      : f_(f),
        options_(options),
        module_(module),
        is_after_loss_(f.nodes.size(), false),
        partner_(f.nodes.size(), kNone) {
    for (NodeId n = 0; n < f.nodes.size(); ++n) {
      const Node& node = f.nodes[n];
      is_after_loss_[n] = node.op == &linear_cross_entropy_op ||
                          any_of(node.inputs, [&](ValueId v) { return is_after_loss(v); });
      match(n);
    }
  }
  bool has_work() const {
    return any_of(partner_, [](NodeId n) { return n != kNone; });
  }

  Result<Function> run() {
    Rewriter rw(module_, f_);
    std::vector<bool> is_done(f_.nodes.size(), false);
    for (NodeId n = 0; n < f_.nodes.size(); ++n) emit(rw, is_done, n);
    return rw.finish();
  }

 private:
  // Is `n` the gradient of a loss that can wait for the gradient's other operands? These must need
  // no loss at all: of two gradients that each need the other's loss only one could be joined.
  void match(NodeId n) {
    const Node& bwd = f_.nodes[n];
    if (bwd.op != &linear_cross_entropy_bwd_op) return;
    const NodeId at = f_.values[bwd.inputs[3]].node;
    if (at == kNone || partner_[at] != kNone) return;
    const Node& fwd = f_.nodes[at];
    if (fwd.op != &linear_cross_entropy_op || bwd.inputs[3] != fwd.output(0) ||
        fwd.attrs != bwd.attrs ||
        !std::equal(fwd.inputs.begin(), fwd.inputs.end(), bwd.inputs.begin()))
      return;
    if (is_after_loss(bwd.inputs[4]) || is_after_loss(bwd.inputs[5])) return;
    std::vector<Type> in = f_.input_types(bwd), out = f_.output_types(fwd);
    // Fewer tokens than planned leave gaps between the rows, which the kernel cannot read.
    if (!in[0].shape.is_const()) return;
    in.erase(in.begin() + 3);
    for (const Type& t : f_.output_types(bwd)) out.push_back(t);
    const OpCall call{&linear_cross_entropy_grads_op, &fwd.attrs, in, out, nullptr, {}};
    if (!options_.asked().has_kernel(call)) return;
    partner_[at] = n;
  }

  bool is_after_loss(ValueId v) const {
    const NodeId from = f_.values[v].node;
    return from != kNone && is_after_loss_[from];
  }

  // The node, after what it reads.
  void emit(Rewriter& rw, std::vector<bool>& is_done, NodeId n) {
    if (is_done[n]) return;
    is_done[n] = true;
    Node& node = f_.nodes[n];
    const NodeId partner = partner_[n];
    const auto need = [&](ValueId v) {
      if (!rw.has(v)) emit(rw, is_done, f_.values[v].node);
    };
    if (partner == kNone) {
      std::for_each(node.inputs.begin(), node.inputs.end(), need);
      return rw.take(node);
    }
    is_done[partner] = true;
    const Node& bwd = f_.nodes[partner];
    std::vector<Var> in;
    for (const size_t i : {0, 1, 2, 4, 5}) {
      need(bwd.inputs[i]);
      in.push_back(rw.at(bwd.inputs[i]));
    }
    rw.builder().set_origin(node.origin);
    rw.builder().set_phase(node.phase);
    const auto out = rw.builder().emit_n(linear_cross_entropy_grads_op, node.attrs, in);
    for (uint32_t i = 0; i < 2; ++i) {
      rw.bind(node.output(i), out[i]);
      rw.bind(bwd.output(i), out[2 + i]);
    }
  }

  Function& f_;
  const PassOptions& options_;
  Module& module_;
  std::vector<bool> is_after_loss_;  // needs a loss
  std::vector<NodeId> partner_;      // of a loss: the gradient that joins it
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  const bool is_tight = options.remat != Remat::kNone || options.memory_bytes > 0;
  if (is_tight && options.target->device == DeviceKind::kCpu) return false;
  LossGrads pass(module, f, options);
  return rewrite_if_any(pass, f);
}

}  // namespace

extern const PassDef loss_grads_pass = {
    .name = "loss_grads",
    .doc = "a loss together with its gradient, so that logits are formed once",
    .sums = "bf16 on Hopper: the loss's sums are of exponentials beside a shift",
    .phase = PassPhase::kFuse,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
