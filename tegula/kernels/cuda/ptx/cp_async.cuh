// cp.async (sm_80): a thread copies 16 bytes from global to shared memory and goes on; the copies
// of a thread are committed in groups and waited for from the oldest on.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

// Writes 16 bytes to `to`, the first `bytes` (0..16) from `from` and zeros after them.
__device__ inline void cp_async(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// The same, told what the L2 should do with the line.
__device__ inline void cp_async(u32 to, const void* from, u32 bytes, u64 policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(bytes), "l"(policy)
               : "memory");
}

__device__ inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the last kPending groups of this thread have landed.
template <int kPending>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace tegula::cuda
