// Launches over lines along one dim.
#pragma once

#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

// Lines of x along `dim`, and of results that have x's other dims.
LineParams lines_along(int dim, const TensorRef& x,
                       std::initializer_list<const TensorRef*> results);
// As lines.cu wants it, with the type of a running sum.
std::vector<std::string> line_defines(DType t);

}  // namespace tegula::cuda
