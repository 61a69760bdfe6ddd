// Launches of the scans along one dim.
#pragma once

#include "tegula/kernels/cuda/plugin/lines.h"

namespace tegula::cuda {

// As the op's attribute `reverse` has it: lines of the tensor begin at their end.
TensorRef reversed(TensorRef t, int dim);
// The kernel of scans.cu with that name over those lines of that type.
Status launch_scan(const char* name, bool is_recurrence, DType t, const LineParams& p,
                   const Stream& to);

}  // namespace tegula::cuda
