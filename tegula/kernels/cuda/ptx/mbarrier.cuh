// mbarrier: a counter in shared memory that turns over to its next phase when as many arrivals as
// it was set up for have come and all bytes promised to it have landed.
//
// A waiter names the *parity* of the phase it waits for: 0 for the first, 1 for the second, ...
// Waiting with parity 1 on a fresh barrier returns at once, which is how "slot is free" barriers
// start out free. `Ring` keeps slot and parity of a ring of stages.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

using Barrier = u64;  // 8-byte aligned, in shared memory

__device__ inline void barrier_init(Barrier* b, u32 n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(b)), "r"(n_arrivals));
}

// Makes initialised barriers visible to the copy engine; follow it with __syncthreads().
__device__ inline void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_arrive(Barrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(b)) : "memory");
}

// One arrival, and a promise that `bytes` more will be written by asynchronous copies.
__device__ inline void barrier_arrive_expect(Barrier* b, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(b)),
               "r"(bytes)
               : "memory");
}

__device__ inline bool barrier_test(Barrier* b, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(smem_address(b)), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ inline void barrier_wait(Barrier* b, u32 parity) {
  while (!barrier_test(b, parity)) {
  }
}

// Position in a ring of kStages slots.
template <int kStages>
struct Ring {
  u32 slot = 0;
  u32 parity = 0;
  __device__ void advance() {
    if (++slot == kStages) slot = 0, parity ^= 1;
  }
  // By at most kStages.
  __device__ void advance(u32 n) {
    slot += n;
    if (slot >= kStages) slot -= kStages, parity ^= 1;
  }
};

}  // namespace tegula::cuda
