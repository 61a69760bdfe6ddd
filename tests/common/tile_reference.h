// The tile language in plain C++, one element at a time: its definition, and the tests' oracle.
//
// kDtype follows program.h to the letter. Its f32 transcendental functions are rounded from double,
// so that a vector interpreter may differ from them by its functions' error, and in nothing else.
// kDouble keeps every value of the f32 class that has a float dtype in double, unrounded.
#pragma once

#include <span>

#include "tegula/tile/space.h"

namespace tegula::tile {

enum class Precision : uint8_t { kDtype, kDouble };

// Runs a sealed program. Operands as for the kernel "fused" (shapes of the iteration space, or its
// rows, or one element); an output may have another dtype than declared, f64 for kDouble say.
// Errors: those of space_of.
Status run_reference(const Program& p, std::span<const TensorRef> in,
                     std::span<const TensorRef> out, Precision precision = Precision::kDtype);

}  // namespace tegula::tile
