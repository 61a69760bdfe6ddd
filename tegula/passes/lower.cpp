// Replaces ops that the device has no kernel for by their decompositions, until nothing is left to
// replace. What a decomposition computes has its own order: bits may differ from the op's
// reference.
#include "tegula/ir/builder.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {

struct Lowering {
  const PassOptions& options;

  bool wanted(const OpCall& call) const {
    const OpDef& op = *call.op;
    // A dot's decomposition is a dot again.
    if (!op.decompose || op.is_multilinear || op.is_view) return false;
    return !options.has_direct_kernel(call, options.kernel_context);
  }

  // One sweep; true: something was replaced.
  Result<bool> sweep(Module& module, Function& f) const {
    bool any = false;
    Rewriter r(module, f);
    for (const Node& n : f.nodes) {
      const auto in = f.input_types(n), out = f.output_types(n);
      const OpCall call{n.op, &n.attrs, in, out, &module, n.regions};
      if (!wanted(call)) {
        r.clone(n);
        continue;
      }
      any = true;
      std::vector<Var> args;
      for (ValueId v : n.inputs) args.push_back(r.at(v));
      r.builder().set_loc(n.loc);
      r.builder().set_phase(n.phase);
      const auto results = n.op->decompose(r.builder(), call, args);
      r.builder().set_loc(std::nullopt);
      for (uint32_t i = 0; i < n.n_outputs; ++i) {
        TEGULA_CHECK(r.builder().failed() || results[i].type() == out[i], n.op->name, ": result ",
                     i, " of the decomposition is ", results[i].type(), ", not ", out[i]);
        r.bind(n.output(i), results[i]);
      }
    }
    if (!any) return false;
    f = TEGULA_TRY(r.finish());
    return true;
  }
};

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (!options.has_direct_kernel) return false;
  const Lowering lowering{options};
  bool changed = false;
  while (TEGULA_TRY(lowering.sweep(module, f))) changed = true;
  return changed;
}

}  // namespace

extern const PassDef lower_pass = {"lower", "ops without a kernel become simpler ops", run};

}  // namespace tegula
