// Strategies: how the ranks of a mesh may share out one node of a step, and what that takes.
//
// On every axis a node is done whole by all ranks, or cut along one of its factors, as its dim map
// says (passes/local_call.h): a free factor splits results, a contracted one leaves sums pending,
// a window's or a fixed order's is no choice. Axes are cut one after another, so that two of them
// may share one factor.
//   seconds = max(flops / (.75·peak), bytes / (.9·bandwidth)) + launch,   of a rank's part
// without the launch where it is elementwise, since loops are fused.
#pragma once

#include <vector>

#include "tegula/passes/local_call.h"
#include "tegula/planner/reshard.h"

namespace tegula::planner {

struct Strategy {
  std::vector<AxisCut> cuts;      // per axis
  std::vector<Sharding> in, out;  // what it wants of operands, and gives
  double seconds = 0;
  double bytes = 0;   // of a rank's results
  int64_t flops = 0;  // of a rank
};

// May sums stay pending through it, if all its operands' do?
bool passes_sums(const OpDef& op);

// All of a node, the uncut one first; at most `most`, those that cut more of the work first.
// Nodes with regions are done whole.
std::vector<Strategy> strategies_of(const Module& module, const Function& f, const Node& node,
                                    const MeshLinks& links, size_t most = 64);
// The one with these cuts. Error: it is not possible.
Result<Strategy> strategy_of(const Module& module, const Function& f, const Node& node,
                             const MeshLinks& links, const std::vector<AxisCut>& cuts);

}  // namespace tegula::planner
