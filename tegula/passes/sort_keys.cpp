// Attention over keys out of order (a row that ranks were dealt, gathered again) gets them in the
// order of their positions, which kernels want. Before the cut such a call is whole, as if there
// were a kernel for it: a ring's parts have their keys in order.

#include "tegula/base/range.h"
#include "tegula/ir/builder.h"
#include "tegula/ops/attention.h"
#include "tegula/passes/pass.h"

namespace tegula {

namespace {
bool is_wanted(const Module& module, const Function& f, const Node& n) {
  if (!n.attrs.has("k_runs")) return false;
  const auto in = f.input_types(n), out = f.output_types(n);
  return in_key_order({n.op, &n.attrs, in, out, &module, n.regions}).has_value();
}

Result<bool> run(Module& module, Function& f, const PassOptions&) {
  if (!any_of(f.nodes, [&](const Node& n) { return is_wanted(module, f, n); })) return false;
  Rewriter r(module, f);
  Builder& b = r.builder();
  for (Node& n : f.nodes) {
    if (!is_wanted(module, f, n)) {
      r.take(n);
      continue;
    }
    const auto in = f.input_types(n), out = f.output_types(n);
    std::vector<Var> args;
    for (ValueId v : n.inputs) args.push_back(r.at(v));
    b.set_origin(n.origin);
    b.set_phase(n.phase);
    const auto results = n.op->decompose(b, {n.op, &n.attrs, in, out, &module, n.regions}, args);
    if (b.failed()) return b.error();
    for (uint32_t i = 0; i < n.n_outputs; ++i) r.bind(n.output(i), results[i]);
  }
  Function sorted = TEGULA_TRY(r.finish());
  f = std::move(sorted);
  return true;
}

}  // namespace

extern const PassDef sort_keys_pass = {
    .name = "sort_keys",
    .doc = "attention reads its keys in the order of their positions",
    .phase = PassPhase::kCombine,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
