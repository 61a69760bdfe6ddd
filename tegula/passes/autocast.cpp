// Mixed precision: contractions read bf16 and keep f32 sums; everything else stays f32.
//
// An op declared Precision::kLow (dot, attention, the head of the loss) that has a kernel for the
// low dtype gets its f32 operands cast to it. A product with a weight also rounds its result, so
// that activations and their gradients take half the memory; sums over the batch (gradients of
// weights) and scores on their way to a softmax stay f32. Norms, elementwise arithmetic, losses and
// the update read casts back to f32, which `fuse` makes free. Weights and state stay f32 and are
// cast once, for the forward and the backward part alike. Bodies of loops stay f32: they would cast
// their weights in every round. [Micikevicius et al. 2018, 3.1]
//
// This pass changes bits: results are those of the rounded operands.
#include <optional>
#include <unordered_map>

#include "tegula/ir/builder.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/precision.h"

namespace tegula {

namespace {

class Autocast {
 public:
  Autocast(Module& module, const Function& f, const PassOptions& options)
      : module_(module),
        f_(f),
        options_(options),
        low_(options.compute_dtype),
        rw_(module, f),
        is_kept_(f.values.size(), 0) {
    for (const Node& n : f.nodes)
      for (ValueId v : n.inputs)
        if (n.op->precision != Precision::kHigh) is_kept_[v] = 1;
  }

  Result<bool> run(Function& out) {
    bool changed = false;
    for (const Node& n : f_.nodes) {
      if (const auto attrs = lowered_attrs(n)) {
        changed = true;
        lower(n, *attrs);
      } else {
        rw_.clone(n);
      }
    }
    if (!changed) return false;
    out = TEGULA_TRY(rw_.finish());
    remove_dead_nodes(out);
    return true;
  }

 private:
  bool is_lowered(const Node& n, size_t i) const {
    return f_.type(n.inputs[i]).dtype == DType::kF32 && is_low_operand(*n.op, i);
  }

  bool reads_weight(const Node& n) const {
    for (ValueId v : n.inputs) {
      while (const Node* p = f_.producer(v)) {
        if (!p->op->is_view || p->inputs.size() != 1) break;
        v = p->inputs[0];
      }
      if (!f_.producer(v) && f_.params[f_.values[v].index].role == Role::kWeight) return true;
    }
    return false;
  }

  // The attributes of the node in the low dtype; none: it stays. A dot's result is rounded, too, if
  // it is a product with a weight, unless it is only on its way to an op that wants f32; and where
  // the target has no kernel that leaves it in f32.
  std::optional<Attrs> lowered_attrs(const Node& n) const {
    if (n.op->precision != Precision::kLow || n.phase == Phase::kUpdate || n.inputs.empty() ||
        f_.type(n.inputs[0]).dtype != DType::kF32)
      return {};
    if (n.op == &dot_op && !(reads_weight(n) && is_kept_[n.output()])) {
      Attrs attrs = n.attrs;
      attrs.set("out", DType::kF32);
      if (has_kernel(n, attrs)) return attrs;
    }
    if (!has_kernel(n, n.attrs)) return {};
    return n.attrs;
  }

  // Of the node with lowered operands.
  bool has_kernel(const Node& n, const Attrs& attrs) const {
    const auto in = lowered_types(*n.op, f_.input_types(n), low_);
    OpCall call{n.op, &attrs, in, {}, &module_, n.regions};
    const auto out = infer(call);
    if (!out.ok()) return false;
    call.out = *out;
    return !options_.has_direct_kernel || options_.has_direct_kernel(call, options_.kernel_context);
  }

  void lower(const Node& n, const Attrs& attrs) {
    Builder& b = rw_.builder();
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    std::vector<Var> in;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const Var x = rw_.at(n.inputs[i]);
      in.push_back(is_lowered(n, i) ? lowered(x) : x);
    }
    const auto out = b.emit_n(*n.op, attrs, in, n.regions, n.origin.loc);
    for (uint32_t i = 0; i < n.n_outputs && !b.failed(); ++i)
      rw_.bind(n.output(i), cast(out[i], f_.type(n.output(i)).dtype, n.origin.loc));
  }

  // Of the function being written; valid until the next node.
  const Node* maker(Var v) { return rw_.builder().function().producer(v.id()); }

  // Is x there in the low dtype already, up to moving it?
  bool is_rounded(Var x) {
    const Node* n = maker(x);
    if (known_.contains(x.id())) return true;
    if (!n) return false;
    const auto input = [&](size_t i) { return Var(&rw_.builder(), n->inputs[i]); };
    if (n->op == &cast_op) return input(0).dtype() == low_;
    if (!moves(*n)) return false;
    for (size_t i = 0; i < n->inputs.size(); ++i)
      if (!is_rounded(input(i))) return false;
    return true;
  }

  static bool moves(const Node& n) {
    return (n.op->is_view && n.inputs.size() == 1) || n.op == &concat_op || n.op == &pad_op;
  }

  // Not more to cast than before the view.
  bool is_cheaper_before(const Node& n) {
    if (!n.op->is_view || n.inputs.size() != 1) return false;
    const Function& g = rw_.builder().function();
    const bool is_weight =
        !g.producer(n.inputs[0]) && g.params[g.values[n.inputs[0]].index].role == Role::kWeight;
    return is_weight || g.type(n.inputs[0]).bytes() <= g.type(n.output()).bytes();
  }

  Var lowered(Var x) {
    if (x.dtype() == low_) return x;
    if (const auto it = known_.find(x.id()); it != known_.end())
      return Var(&rw_.builder(), it->second);
    Var y;
    const Node* n = maker(x);
    if (n && n->op == &cast_op && Var(&rw_.builder(), n->inputs[0]).dtype() == low_) {
      y = Var(&rw_.builder(), n->inputs[0]);
    } else if (n && ((moves(*n) && is_rounded(x)) || is_cheaper_before(*n))) {
      const Node copy = *n;
      std::vector<Var> in;
      for (ValueId v : copy.inputs) in.push_back(lowered(Var(&rw_.builder(), v)));
      y = rw_.builder().emit_n(*copy.op, copy.attrs, in, {}, copy.origin.loc)[0];
    } else {
      y = cast(x, low_);
    }
    known_[x.id()] = y.id();
    return y;
  }

  const Module& module_;
  const Function& f_;
  const PassOptions& options_;
  DType low_;
  Rewriter rw_;
  std::vector<uint8_t> is_kept_;                // read by ops that do not insist on f32
  std::unordered_map<ValueId, ValueId> known_;  // values of the new function -> in the low dtype
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.compute_dtype == DType::kF32) return false;
  bool any = false;
  for (const Node& n : f.nodes) any |= n.op->precision == Precision::kLow;
  if (!any) return false;
  Function out;
  if (!TEGULA_TRY(Autocast(module, f, options).run(out))) return false;
  f = std::move(out);
  return true;
}

}  // namespace

extern const PassDef autocast_pass = {
    .name = "autocast",
    .doc = "contractions in bf16 with f32 sums and masters",
    .phase = PassPhase::kPrecision,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
