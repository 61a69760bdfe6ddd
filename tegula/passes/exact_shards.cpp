// In Mode::kExact sums over the batch get shards (sum_shards.h): gradients of norms, biases, tables
// and of the loss's head. What they are depends on the shape of the whole step alone, never on a
// mesh. `dot` has had its own since it was built; the update sums nothing over a batch.
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/sum_shards.h"

namespace tegula {

namespace {

// Does the value, which one node alone reads, pend over so many shards?
bool pends(const Module& module, const Function& f, ValueId v, int64_t shards) {
  const Node* n = f.producer(v);
  if (!n || n->attrs.get_or<int64_t>(kSumShards, 1) != shards) return false;
  if (n->op == &add_op) return true;
  const LocalCall call(module, f, *n);
  const auto map = dim_map(call.call());
  if (!map.ok()) return false;
  const int factor = sharded_factor(call, *map);
  return factor >= 0 &&
         map->combine[static_cast<size_t>(factor)][v - n->output(0)] == Combine::kSum;
}

// Sums over the same shards are added shard by shard, before any is joined: a table's two uses.
bool mark_add(const Module& module, Function& f, Node& n, const std::vector<uint32_t>& uses) {
  const Node* first = f.producer(n.inputs[0]);
  if (!first || n.inputs[0] == n.inputs[1]) return false;
  const int64_t shards = first->attrs.get_or<int64_t>(kSumShards, 1);
  if (shards < 2) return false;
  for (ValueId v : n.inputs)
    if (uses[v] != 1 || !(f.type(v) == f.type(n.output())) || !pends(module, f, v, shards))
      return false;
  n.attrs.set(kSumShards, shards);
  return true;
}

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.mode != Mode::kExact || !options.is_step || options.is_region) return false;
  bool changed = false;
  const std::vector<uint32_t> uses = f.use_counts();
  for (Node& n : f.nodes) {
    // A loss has the shards of its gradient, so that both may still become one op.
    const bool is_loss = n.op == &linear_cross_entropy_op;
    if (n.phase == Phase::kUpdate || !n.regions.empty() || n.op->is_view ||
        n.attrs.has(kSumShards) || (n.op->is_elementwise && !is_loss)) {
      if (n.op == &add_op && n.phase != Phase::kUpdate && !n.attrs.has(kSumShards))
        changed |= mark_add(module, f, n, uses);
      continue;
    }
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
