// The iteration space of a launch, from its operands.
#pragma once

#include <span>

#include "tegula/base/tensor.h"
#include "tegula/tile/program.h"

namespace tegula::tile {

struct Space {
  int rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t n_rows = 1, row_len = 1;  // row_len = 1 for an elementwise program
};

// The shape that full operands share; checks every operand against it. Errors (invalid_argument)
// name the operand whose shape does not fit.
Result<Space> space_of(const Program& p, std::span<const TensorRef> in,
                       std::span<const TensorRef> out);

}  // namespace tegula::tile
