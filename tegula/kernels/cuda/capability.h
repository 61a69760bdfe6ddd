// The limits that follow from a compute capability alone (90 is 9.0).
#pragma once

namespace tegula::cuda {

inline constexpr int kOldestCapability = 80;

// Shared memory that a block may have (CUDA C++ Programming Guide, table of compute capabilities).
constexpr int max_smem_bytes(int capability) {
  const bool is_small = capability == 86 || capability == 89 || capability >= 120;
  return (is_small ? 99 : capability < 90 ? 163 : 227) * 1024;
}

}  // namespace tegula::cuda
