// In Mode::kExact sums over the batch, and over a sequence that is long enough, get shards
// (sum_shards.h): gradients of weights, norms, biases, tables and of the loss's head. What they are
// depends on the shape of the whole step alone, never on a mesh. The update sums nothing over a
// batch.

#include "tegula/base/algorithm.h"
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"
#include "tegula/passes/plain_dot.h"
#include "tegula/passes/sum_shards.h"

namespace tegula {

namespace {

// Does the value, which one node alone reads, pend over so many shards?
bool pends(const Module& module, const Function& f, ValueId v, int64_t shards) {
  const Node* n = f.producer(v);
  if (!n || n->op == &dot_op || SumShards::of(n->attrs).outer != shards) return false;
  if (n->op == &add_op) return true;
  const LocalCall call(module, f, *n);
  const auto map = dim_map(call.call());
  if (!map.ok()) return false;
  const int factor = outer_factor(*map);
  return factor >= 0 &&
         map->combine[static_cast<size_t>(factor)][v - n->output(0)] == Combine::kSum;
}

// Sums over the same shards are added shard by shard, before any is joined: a table's two uses.
bool mark_add(const Module& module, Function& f, Node& n, const std::vector<uint32_t>& uses) {
  const Node* first = f.producer(n.inputs[0]);
  if (!first || n.inputs[0] == n.inputs[1]) return false;
  const int64_t shards = SumShards::of(first->attrs).outer;
  if (shards < 2) return false;
  for (ValueId v : n.inputs)
    if (uses[v] != 1 || !(f.type(v) == f.type(n.output())) || !pends(module, f, v, shards))
      return false;
  SumShards{shards}.put(n.attrs);
  return true;
}

// A product over a batch and a sequence has cells. One over a batch alone, or over one sequence,
// has shards of its k, if it is too short to have them anyway.
bool mark_dot(const LocalCall& call, Node& n) {
  if (!is_plain_dot(n)) return false;
  const SumShards shards = most_shards(call);
  if (!shards.any()) return false;
  const bool has_batch = call.in[0].shape[0] != Dim(1);
  const int most_rank = std::max(call.in[0].shape.rank(), call.in[1].shape.rank());
  if (has_batch && shards.inner > 1 && most_rank + 2 <= kMaxRank) {
    n.attrs.erase("k_shards");
    shards.put(n.attrs);
    return true;
  }
  if (n.attrs.has("k_shards")) return false;
  n.attrs.set("k_shards", has_batch ? shards.outer : shards.inner);
  return true;
}

// A loss has the shards of its gradient, so that both may still become one op.
SumShards shards_of_loss(const Type& x) {
  if (!x.shape.is_const() || x.shape[0].bound() == 0) return {};
  return {shards_of(x.shape[0].bound()),
          x.shape.rank() > 2 ? shards_of_sequence(x.shape[1].bound()) : 1};
}

Result<bool> run(Module& module, Function& f, const PassOptions& options) {
  if (options.mode != Mode::kExact || !options.is_step || options.is_region) return false;
  bool changed = false;
  const std::vector<uint32_t> uses = f.use_counts();
  for (Node& n : f.nodes) {
    if (n.phase == Phase::kUpdate || !n.regions.empty() || n.op->is_view || n.attrs.has(kSumShards))
      continue;
    const bool is_loss = n.op == &linear_cross_entropy_op;
    if (n.op == &add_op) {
      changed |= mark_add(module, f, n, uses);
    } else if (n.op == &dot_op) {
      changed |= mark_dot(LocalCall(module, f, n), n);
    } else if (is_loss || !n.op->is_elementwise) {
      const SumShards shards =
          is_loss ? shards_of_loss(f.type(n.inputs[0])) : most_shards(LocalCall(module, f, n));
      shards.put(n.attrs);
      changed |= shards.any();
    }
  }
  return changed;
}

}  // namespace

extern const PassDef exact_shards_pass = {
    .name = "exact_shards",
    .doc = "sums over the batch in shards that ranks may hold",
    .sums = "in mode exact sums over the batch, or a long sequence, get shards",
    .phase = PassPhase::kOrder,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
