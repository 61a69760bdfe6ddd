// Replaces ops that the device has no kernel for by their decompositions, until nothing is left to
// replace. What a decomposition computes has its own order: bits may differ from the op's
// reference.
#include "tegula/ir/builder.h"
#include "tegula/ir/regions.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/precision.h"

namespace tegula {

namespace {

// Is there a kernel for it once autocast has been there?
bool has_low_kernel(const OpCall& call, const PassOptions& options) {
  if (options.compute_dtype == DType::kF32 || call.op->precision != Precision::kLow) return false;
  const auto in = lowered_types(*call.op, call.in, options.compute_dtype);
  OpCall low = call;
  low.in = in;
  const auto out = infer({call.op, call.attrs, in, {}, call.module, call.regions});
  if (!out.ok()) return false;
  low.out = *out;
  return options.asked().has_kernel(low);
}

bool is_wanted(const OpCall& call, const PassOptions& options) {
  const OpDef& op = *call.op;
  if (!op.decompose || op.is_view || has_bodies(op)) return false;
  // A plain dot's decomposition is itself.
  if (&op == &dot_op && !call.attrs->has("scale") && !call.attrs->has("bias") &&
      !call.attrs->has("activation"))
    return false;
  return !options.asked().has_kernel(call) && !has_low_kernel(call, options);
}

// Is there anything to replace among the nodes from `begin` on?
bool any_wanted(const Module& module, const Function& f, size_t begin, const PassOptions& options) {
  for (size_t i = begin; i < f.nodes.size(); ++i) {
    const Node& n = f.nodes[i];
    if (!n.op->decompose) continue;
    const auto in = f.input_types(n), out = f.output_types(n);
    if (is_wanted({n.op, &n.attrs, in, out, &module, n.regions}, options)) return true;
  }
  return false;
}

// One sweep; true: what it wrote has more to replace.
Result<bool> sweep(Module& module, Function& f, const PassOptions& options) {
  bool again = false;
  Rewriter r(module, f);
  Builder& b = r.builder();
  for (Node& n : f.nodes) {
    if (!n.op->decompose) {
      r.take(n);
      continue;
    }
    const auto in = f.input_types(n), out = f.output_types(n);
    const OpCall call{n.op, &n.attrs, in, out, &module, n.regions};
    if (!is_wanted(call, options)) {
      r.take(n);
      continue;
    }
    std::vector<Var> args;
    for (ValueId v : n.inputs) args.push_back(r.at(v));
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    const size_t begin = b.function().nodes.size();
    const auto results = n.op->decompose(b, call, args);
    if (b.failed()) return b.error();  // an op may refuse these sizes
    again |= any_wanted(module, b.function(), begin, options);
    for (uint32_t i = 0; i < n.n_outputs; ++i) {
      TEGULA_CHECK(results[i].type() == out[i], n.op->name, ": result ", i,
                   " of the decomposition is ", results[i].type(), ", not ", out[i]);
      r.bind(n.output(i), results[i]);
    }
  }
  Function lowered = TEGULA_TRY(r.finish());
  f = std::move(lowered);
  return again;
}

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (!any_wanted(module, f, 0, options)) return false;
  while (TEGULA_TRY(sweep(module, f, options)))
    ;
  return true;
}

}  // namespace

extern const PassDef lower_pass = {
    .name = "lower",
    .doc = "ops without a kernel become simpler ops",
    .sums = "a decomposition has an order of its own, not that of the op's reference",
    .phase = PassPhase::kCanonicalise,
    .gives = kIsLowered,
    .takes = kHasComposites,
    .run = run,
};

}  // namespace tegula
