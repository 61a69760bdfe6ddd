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
  for (Node& n : f.nodes) {
    if (n.phase == Phase::kUpdate || !n.regions.empty() || n.op->is_view || n.attrs.has(kSumShards))
      continue;
    const bool is_loss = n.op == &linear_cross_entropy_op;
    if (n.op == &dot_op) {
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
