// The tile language in plain C++, one element at a time: its definition, and the tests' oracle.
//
// kDtype follows program.h to the letter. Its f32 transcendental functions are rounded from double,
// so that a vector interpreter may differ from them by its functions' error, and in nothing else.
// kDouble keeps every value of the f32 class that has a float dtype in double, unrounded.
#pragma once

#include <span>

#include "tegula/base/tensor.h"
#include "tegula/tile/program.h"

namespace tegula::tile {

enum class Precision : uint8_t { kDtype, kDouble };

// Runs a sealed program. Operands as for the kernel "fused" (shapes of the iteration space, or its
// rows, or one element); an output may have another dtype than declared, f64 for kDouble say.
// Errors (invalid_argument) name the operand whose shape does not fit.
Status run_reference(const Program& p, std::span<const TensorRef> in,
                     std::span<const TensorRef> out, Precision precision = Precision::kDtype);

// The iteration space: the shape that full operands share. Checks every operand against it.
struct Space {
  int rank = 0;
  int64_t shape[kMaxRank] = {};
  int64_t n_rows = 1, row_len = 1;
};
Result<Space> space_of(const Program& p, std::span<const TensorRef> in,
                       std::span<const TensorRef> out);

}  // namespace tegula::tile
