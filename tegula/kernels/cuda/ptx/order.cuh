// Numbers in global memory by which blocks wait for one another; and in shared memory, by which
// warps do.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

__device__ inline u32 load_acquire(const u32* from) {
  u32 x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
  return x;
}
// After all that this thread has seen happen.
__device__ inline void store_release(u32* to, u32 x) {
  asm volatile("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(x)
               : "memory");
}
// Adds 1 after all that this thread has seen happen: what was there, and all that had come before;
// or without waiting for what was there.
__device__ inline u32 add_and_see(u32* counter) {
  u32 before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}
__device__ inline void add_released(u32* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// In shared memory, ordered with nothing else.
__device__ inline u32 load_relaxed(const u32* from) {
  u32 x;
  asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];" : "=r"(x) : "r"(smem_address(from)));
  return x;
}
__device__ inline void store_relaxed(u32* to, u32 x) {
  asm volatile("st.relaxed.cta.shared::cta.u32 [%0], %1;" ::"r"(smem_address(to)), "r"(x));
}

}  // namespace tegula::cuda
