// Where stages of a step begin.
#pragma once

#include <string>
#include <vector>

#include "tegula/ir/module.h"
#include "tegula/kernels/target.h"
#include "tegula/train/config.h"

namespace tegula {

// The scopes ("layers.3") with which the stages behind the first begin, so that the slowest is as
// fast as it can be by the prices of the steps of one rank's plan, and the others as even as that
// leaves them.
Result<std::vector<std::string>> balanced_stages(const Module& module, FuncId step,
                                                 const TrainConfig& config, const Target& target,
                                                 int n_stages);

}  // namespace tegula
