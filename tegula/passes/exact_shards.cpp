// In Mode::kExact sums over the batch get shards (sum_shards.h): gradients of norms, biases, tables
// and of the loss's head. What they are depends on the shape of the whole step alone, never on a
// mesh. `dot` has had its own since it was built; the update sums nothing over a batch.
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/sum_shards.h"

namespace tegula {

namespace {

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.mode != Mode::kExact || !options.is_step || options.is_region) return false;
  bool changed = false;
  for (Node& n : f.nodes) {
    // A loss has the shards of its gradient, so that both may still become one op.
    const bool is_loss = n.op == &linear_cross_entropy_op;
    if (n.phase == Phase::kUpdate || !n.regions.empty() || n.op->is_view ||
        n.attrs.has(kSumShards) || (n.op->is_elementwise && !is_loss))
      continue;
    int64_t shards = most_shards(LocalCall(module, f, n));
    if (is_loss && f.type(n.inputs[0]).shape[0].is_const())
      shards = shards_of(f.type(n.inputs[0]).shape[0].bound());
    if (shards < 2) continue;
    n.attrs.set(kSumShards, shards);
    changed = true;
  }
  return changed;
}

}  // namespace

extern const PassDef exact_shards_pass = {
    .name = "exact_shards",
    .doc = "sums over the batch in shards that ranks may hold",
    .phase = PassPhase::kOrder,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
