// shard: where every value of a step lies on a mesh, from where its parameters lie.
//
// Cuts spread forward, node by node: one that an operand has already is taken wherever the op may
// be cut along it (its DimMap says how), partial sums stay pending as long as what reads them is
// linear, and what costs most (products) is cut along another dim rather than done by every rank.
// Among the cuts of a node the cheapest is taken (cost/price.h): what ranks must exchange for its
// operands, and its FLOPs where all ranks do the same. Attention over a split sequence may be a
// ring (passes/ring.h). Where a table's rows are split (mode fast), what indexes them is cut along
// them, and a cross-entropy's log-sum-exp pends as sums do. Types alone are looked at; nothing is
// rewritten.
//
// Values whose sharding the function says (Builder::annotate) are brought there as soon as they are
// made, and cuts spread from there; what that takes is part of the price of their nodes' cuts.
//
// In Mode::kExact a sum is cut only where its order allows it: contractions of several shards
// (k_shards), between them, outermost first; so every rank's part is a subtree of the whole's. Sums
// of integers and largest elements have no order and are cut anywhere.
// Anything else that sums has its operands gathered: attention its keys and values.
//
// [Xu et al. 2021 (GSPMD), section 3.5]
#pragma once

#include "tegula/passes/local_call.h"
#include "tegula/passes/pass.h"

namespace tegula {

struct ShardOptions {
  Mesh mesh;
  std::vector<Sharding> params;  // of each parameter, where the function says nothing
  Mode mode = Mode::kFast;
  // Axes along which the update's state is split (ZeRO): there a pending gradient is shared out
  // where it is read, rather than made whole on every rank. A weight that is split along one, too,
  // is only stored so: what reads it is cut as its other operands are.
  std::vector<uint8_t> scatters = {};
  Target target = {};  // of each rank
};

// The work that every rank of an axis does alike.
struct Uncut {
  const OpDef* op = nullptr;
  std::string scope;  // "layers.3.attn"
  size_t axis = 0;
  int64_t flops = 0;
  // Its factors that the axis' ranks do not divide: "hk 3, g 1"; empty: it was cheaper whole.
  std::string indivisible;
};

struct ShardedStep {
  Mesh mesh;
  std::vector<Sharding> values;              // as their readers find them
  std::vector<Sharding> made;                // as their nodes give them: alike but for annotations
  std::vector<std::vector<AxisCut>> nodes;   // per node and axis
  std::vector<std::vector<Sharding>> wants;  // as cuts want their nodes' operands, per node
  // Values of weights alone, which are fetched for each phase anew, one ahead (ZeRO-3). Empty:
  // none.
  std::vector<uint8_t> stored;
  std::vector<Uncut> uncut;  // products that some axis does not share out
  Mode mode = Mode::kFast;
  Target target = {};
};

// Errors: a parameter whose sharding does not fit its type, with both numbers; annotations for
// another mesh, or of a sum that pends.
Result<ShardedStep> shard(const Module& module, const Function& f, const ShardOptions& options);

}  // namespace tegula
