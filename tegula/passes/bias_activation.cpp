// dot + bias, and an activation after it, become the epilogue of the dot: its result is finished
// while it is in registers, instead of being written, read and written again.
//
// Fires where nothing else reads the product (the sum, for an activation) and the device has a
// kernel for the whole. The epilogue rounds as the separate nodes do: bits stay.
#include "tegula/ir/builder.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/dot_dims.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

std::string_view activation_of(const OpDef& op) {
  return &op == &gelu_op ? "gelu" : &op == &silu_op ? "silu" : &op == &relu_op ? "relu" : "";
}

class Finisher {
 public:
  Finisher(Module& module, const Function& f, const PassOptions& options)
      : module_(module), f_(f), options_(options), rw_(module, f), uses_(f.use_counts()) {}

  Result<bool> run(Function& out) {
    bool changed = false;
    for (const Node& n : f_.nodes) {
      const Var y = n.op == &add_op                ? with_bias(n)
                    : activation_of(*n.op).empty() ? Var()
                                                   : with_activation(n);
      changed |= y.valid();
      y.valid() ? rw_.bind(n.output(), y) : rw_.clone(n);
    }
    if (!changed) return false;
    out = TEGULA_TRY(rw_.finish());
    remove_dead_nodes(out);
    return true;
  }

 private:
  // The node of the new function that stands for the old value, if it is a dot nobody else reads.
  const Node* only_dot(ValueId v) {
    const Node* n = rw_.builder().function().producer(rw_.id(v));
    return n && n->op == &dot_op && uses_[v] == 1 ? n : nullptr;
  }

  Var emit(const Node& old, Attrs attrs, const std::vector<ValueId>& in) {
    std::vector<Type> types;
    std::vector<Var> vars;
    for (ValueId v : in) {
      vars.emplace_back(&rw_.builder(), v);
      types.push_back(vars.back().type());
    }
    const Type out[] = {f_.type(old.output())};
    const OpCall call{&dot_op, &attrs, types, out, &module_, {}};
    const auto inferred = infer(call);
    if (!inferred.ok() || !((*inferred)[0] == out[0])) return {};
    if (options_.has_direct_kernel && !options_.has_direct_kernel(call, options_.kernel_context))
      return {};
    rw_.builder().set_loc(old.loc);
    rw_.builder().set_phase(old.phase);
    return rw_.builder().emit_n(dot_op, std::move(attrs), vars)[0];
  }

  // The old value that is broadcast over all dims but the last n of v, or kNone.
  ValueId row_of(ValueId v, int n) const {
    const Shape& shape = f_.type(v).shape;
    const Node* p = f_.producer(v);
    if (!p || p->op != &broadcast_op) return kNone;
    const Shape& s = f_.type(p->inputs[0]).shape;
    for (int d = 0; d < s.rank(); ++d) {
      const bool in_row = d >= s.rank() - n;
      if (!(s[d] == (in_row ? shape[shape.rank() - s.rank() + d] : Dim(1)))) return kNone;
    }
    return s.rank() >= n ? p->inputs[0] : kNone;
  }

  Var with_bias(const Node& add) {
    for (size_t k = 0; k < 2; ++k) {
      const Node* dot = only_dot(add.inputs[k]);
      if (!dot || !is_plain_dot(*dot)) continue;
      const int n = DotDims(dot->attrs.str("dims")).trailing_n();
      const ValueId row = n > 0 ? row_of(add.inputs[1 - k], n) : kNone;
      if (row == kNone) continue;
      Attrs attrs = dot->attrs;
      attrs.set("bias", true);
      std::vector<ValueId> in = dot->inputs;
      Var bias = rw_.at(row);
      if (bias.rank() > n) {
        const Shape& s = f_.type(row).shape;
        Shape last;
        for (int d = s.rank() - n; d < s.rank(); ++d) last.push_back(s[d]);
        bias = reshape(bias, last);
      }
      in.push_back(bias.id());
      return emit(add, std::move(attrs), in);
    }
    return {};
  }

  Var with_activation(const Node& n) {
    const Node* dot = only_dot(n.inputs[0]);
    if (!dot || dot->attrs.get_or<std::string>("activation", "none") != "none") return {};
    Attrs attrs = dot->attrs;
    attrs.set("activation", std::string(activation_of(*n.op)));
    return emit(n, std::move(attrs), std::vector<ValueId>(dot->inputs));
  }

  const Module& module_;
  const Function& f_;
  const PassOptions& options_;
  Rewriter rw_;
  std::vector<uint32_t> uses_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  bool any = false;
  for (const Node& n : f.nodes) any |= n.op == &dot_op;
  if (!any) return false;
  Function out;
  if (!TEGULA_TRY(Finisher(module, f, options).run(out))) return false;
  f = std::move(out);
  return true;
}

}  // namespace

extern const PassDef bias_activation_pass = {
    "bias_activation", "bias and activation become the epilogue of their dot", run};

}  // namespace tegula
