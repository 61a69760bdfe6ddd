// The plan of rank 0 alone, where what one rank holds is asked and nothing is run.
#pragma once

#include "tegula/runtime/compile.h"

namespace tegula {

// As compile_ranks, whose plans[0] it is; whether other ranks' collectives agree is not looked at.
Result<std::shared_ptr<const Plan>> compile_first_rank(const std::shared_ptr<Module>& module,
                                                       FuncId step, const ShardOptions& shard,
                                                       const CompileOptions& options);

}  // namespace tegula
