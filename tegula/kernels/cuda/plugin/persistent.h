// Launches in a row as the steps of one persistent kernel (persistent.cuh).
#pragma once

#include "tegula/kernels/device.h"

namespace tegula::cuda {

// Device::put_in_one: products of few rows and what lies between them, where that is enough of it:
// of one row, with attention, which is where it is faster. TEGULA_CUDA_PERSISTENT=0: none; 1: of up
// to 8 rows, and without attention.
Result<std::vector<WorkInOne>> put_in_persistent_kernels(std::span<const WorkInOrder> work,
                                                         std::span<const MemoryRange> constant,
                                                         const Target& target);

}  // namespace tegula::cuda
