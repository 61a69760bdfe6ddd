// Do the shardings of a step go together, node by node? What `shard` says is held against the ops'
// dims once more: each node's cut must give its results as they are said to lie, from operands that
// can be brought to lie as the cut wants them.
//
// Errors name the node, its value, the axis and its ranks, what is said and what the cut gives.
#pragma once

#include "tegula/passes/shard.h"

namespace tegula {

Status check_shardings(const Module& module, const Function& f, const ShardedStep& sharded);

}  // namespace tegula
