// partition: one rank's function of a step that is sharded (passes/shard.h).
//
// Each node becomes its local op with this rank's attributes; where an operand does not lie as the
// node wants it, a collective or a slice is put between, once for each value and wish. Narrow sums
// that pend are wide until they are whole. Parameters are this rank's shares; a result is whole,
// or, if a parameter is donated to it, lies as the parameter does.
//
// Ranks' functions have the same nodes in the same order, and differ in attributes that say where a
// part lies, at most.
#pragma once

#include "tegula/passes/shard.h"

namespace tegula {

// Adds it to the module. Errors: an op's own about its part.
Result<FuncId> partition(Module& module, FuncId step, const ShardedStep& sharded, int64_t rank);

}  // namespace tegula
