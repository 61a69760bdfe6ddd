// A constant factor of a dot, a bias and an activation after it become the epilogue of the dot: its
// result is finished while it is in registers, instead of being written, read and written again.
//
// Fires where nothing else reads what comes before, and the device has a kernel for the whole. The
// epilogue rounds as the separate nodes do: bits stay. A product whose shards are joined outside
// its kernel (sum_shards.h) has no sum in registers, and is left alone.
#include "tegula/ir/builder.h"
#include "tegula/ir/sum_shards.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/edit.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/peephole.h"
#include "tegula/passes/plain_dot.h"

namespace tegula {

namespace {

std::string_view activation_of(const OpDef& op) {
  return &op == &gelu_op ? "gelu" : &op == &silu_op ? "silu" : &op == &relu_op ? "relu" : "";
}

bool is_broadcast(const Function& f, ValueId v) {
  const Node* n = f.producer(v);
  return n && n->op == &broadcast_op;
}

// Is there a dot that is scaled, added to a broadcast or activated?
bool has_candidates(const Function& f) {
  auto is_dot = [&](ValueId v) { return f.producer(v) && f.producer(v)->op == &dot_op; };
  for (const Node& n : f.nodes)
    if (n.op == &add_op || n.op == &mul_op) {
      for (size_t k = 0; k < 2; ++k)
        if (is_dot(n.inputs[k]) &&
            (n.op == &add_op ? is_broadcast(f, n.inputs[1 - k])
                             : uniform_value(f, n.inputs[1 - k]).has_value()))
          return true;
    } else if (!activation_of(*n.op).empty() && is_dot(n.inputs[0])) {
      return true;
    }
  return false;
}

class Finisher {
 public:
  Finisher(Module& module, Function& f, const PassOptions& options)
      : module_(module), f_(f), options_(options), rw_(module, f), uses_(f.use_counts()) {}

  Result<bool> run() {
    bool changed = false;
    for (Node& n : f_.nodes) {
      Var y;
      if (n.op == &mul_op) y = with_scale(n);
      if (n.op == &add_op) y = with_bias(n);
      if (!activation_of(*n.op).empty()) y = with_activation(n);
      changed |= y.valid();
      y.valid() ? rw_.bind(n.output(), y) : rw_.take(n);
    }
    Function out = TEGULA_TRY(rw_.finish());
    f_ = std::move(out);
    if (changed) remove_dead_nodes(f_);
    return changed;
  }

 private:
  // The node of the new function that stands for the old value, if it is a dot nobody else reads,
  // whose kernel ends with the whole sum.
  const Node* only_dot(ValueId v) {
    const Node* n = rw_.builder().function().producer(rw_.id(v));
    return n && n->op == &dot_op && uses_[v] == 1 && !n->attrs.has(kSumShards) ? n : nullptr;
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
    if (!options_.asked().has_kernel(call)) return {};
    rw_.builder().set_origin(old.origin);
    rw_.builder().set_phase(old.phase);
    return rw_.builder().emit_n(dot_op, std::move(attrs), vars)[0];
  }

  // The value broadcast over all dims but the last n of the old value; invalid if it is not.
  Var row_of(ValueId v, int n) {
    const Function& g = rw_.builder().function();
    if (!is_broadcast(g, rw_.id(v))) return {};
    const Var row(&rw_.builder(), g.producer(rw_.id(v))->inputs[0]);
    const Shape s = row.shape(), &shape = f_.type(v).shape;
    for (int d = 0; d < s.rank(); ++d) {
      const bool in_row = d >= s.rank() - n;
      if (!(s[d] == (in_row ? shape[shape.rank() - s.rank() + d] : Dim(1)))) return {};
    }
    return s.rank() >= n ? row : Var();
  }

  static bool has_bias_or_activation(const Node& dot) {
    return dot.inputs.size() != 2 || dot.attrs.get_or<std::string>("activation", "none") != "none";
  }

  Var with_scale(const Node& mul) {
    for (size_t k = 0; k < 2; ++k) {
      const Node* dot = only_dot(mul.inputs[k]);
      if (!dot || !is_plain_dot(*dot) || !is_float(f_.type(mul.output()).dtype)) continue;
      const auto scale = uniform_value(rw_.builder().function(), rw_.id(mul.inputs[1 - k]));
      if (!scale) continue;
      Attrs attrs = dot->attrs;
      attrs.set("scale", *scale);
      return emit(mul, std::move(attrs), std::vector<ValueId>(dot->inputs));
    }
    return {};
  }

  Var with_bias(const Node& add) {
    for (size_t k = 0; k < 2; ++k) {
      const Node* dot = only_dot(add.inputs[k]);
      if (!dot || has_bias_or_activation(*dot)) continue;
      const int n = trailing_n(dims_of(*dot));
      Var bias = n > 0 ? row_of(add.inputs[1 - k], n) : Var();
      if (!bias.valid()) continue;
      Attrs attrs = dot->attrs;
      attrs.set("bias", true);
      std::vector<ValueId> in = dot->inputs;
      if (bias.rank() > n) {
        Shape last;
        for (int d = bias.rank() - n; d < bias.rank(); ++d) last.push_back(bias.dim(d));
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
  Function& f_;
  const PassOptions& options_;
  Rewriter rw_;
  std::vector<uint32_t> uses_;
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (!has_candidates(f)) return false;
  return Finisher(module, f, options).run();
}

}  // namespace

extern const PassDef bias_activation_pass = {
    .name = "bias_activation",
    .doc = "scale, bias and activation become the epilogue of their dot",
    .phase = PassPhase::kCombine,
    .needs = kIsUnfused,
    .run = run,
};

}  // namespace tegula
