// In mode fast a contraction is one chain: its shards are what mode exact sums in a tree, so that
// any number of ranks gives the same bits. Changes bits; runs in mode fast only.
#include "tegula/ops/table.h"
#include "tegula/passes/pass.h"

namespace tegula {

static Result<bool> run(Module&, Function& f, const PassOptions& options) {
  bool changed = false;
  if (options.mode != Mode::kFast) return changed;
  for (Node& n : f.nodes)
    if ((n.op == &dot_op || n.op == &dot_blocks_op) && n.attrs.has("k_shards"))
      n.attrs.erase("k_shards"), changed = true;
  return changed;
}

extern const PassDef one_chain_pass = {
    .name = "one_chain",
    .doc = "in mode fast, contractions in one chain instead of shards",
    .sums = "in mode fast contractions are one chain, without shards",
    .phase = PassPhase::kOrder,
    .needs = kIsLowered,
    .run = run,
};

}  // namespace tegula
