// Straight copies by the copy engine (sm_90): one thread asks, no tensor map is needed.
#pragma once

#include "tegula/kernels/cuda/ptx/mbarrier.cuh"

namespace tegula::cuda {

// `bytes` (a multiple of 16) in a row.
__device__ inline void bulk_load(void* dst, const void* src, u32 bytes, Barrier* full) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(smem_address(dst)),
      "l"(src), "r"(bytes), "r"(smem_address(full))
      : "memory");
}

// The same, told what the L2 should do with the lines.
__device__ inline void bulk_load(void* dst, const void* src, u32 bytes, Barrier* full, u64 policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(smem_address(dst)),
      "l"(src), "r"(bytes), "r"(smem_address(full)), "l"(policy)
      : "memory");
}

// The way back: `bytes` (a multiple of 16) in a row, in place of what is there, or as f32 added to
// it, in no particular order.
__device__ inline void bulk_store(void* dst, const void* src, u32 bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst),
               "r"(smem_address(src)), "r"(bytes)
               : "memory");
}
__device__ inline void bulk_add(float* dst, const float* src, u32 bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(dst),
      "r"(smem_address(src)), "r"(bytes)
      : "memory");
}

}  // namespace tegula::cuda
