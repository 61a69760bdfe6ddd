// Named barriers, register hand-over, the asynchronous proxy, ldmatrix and stmatrix.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

namespace tegula::cuda {

// Barrier `id` (1..15; 0 is __syncthreads) of `n_threads` threads, those that only arrive included.
__device__ inline void named_sync(u32 id, u32 n_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}
__device__ inline void named_arrive(u32 id, u32 n_threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads) : "memory");
}

// Registers per thread of this warpgroup, a multiple of 8: all four warps must call it.
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Shared memory written by ordinary stores is seen by the copy engine and the tensor cores only
// after this, in each writing thread, and then a barrier.
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Four 8×8 matrices of 16-bit elements: lanes 8i..8i+7 give the row addresses of matrix i, of which
// lane l holds row l/4, columns 2(l%4) and +1 in r[i].
__device__ inline void stmatrix(u32 address, u32 r0, u32 r1, u32 r2, u32 r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// The reverse: the fragment of four 8×8 matrices at the row addresses that the lanes give.
__device__ inline void ldmatrix(u32 address, u32* r) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// The same, each matrix transposed: lane l holds column l/4, rows 2(l%4) and +1.
__device__ inline void ldmatrix_transposed(u32 address, u32* r) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// Programmatic dependent launch: until the grid before in the stream is done and its writes are
// seen; and from now on the next grid's blocks may be started where there is room. No effect in a
// launch without the attribute, nor before Hopper, where there is none.
__device__ inline void wait_for_grid_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void start_grid_after();
// How a kernel begins that may be launched early: its launch, and the next one's, are hidden.
__device__ inline void begin_early() {
  wait_for_grid_before();
  start_grid_after();
}
__device__ inline void start_grid_after() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Brings the line of 128 bytes at an address of global memory into the L2. A hint.
__device__ inline void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// 16 bytes that are read once, past the L1: of memory that nothing writes while the grid runs.
__device__ __forceinline__ uint4 load_streamed(const void* from) {
  uint4 x;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
               : "l"(from));
  return x;
}
// The same of 8 bytes.
__device__ __forceinline__ uint2 load_streamed_8(const void* from) {
  uint2 x;
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(x.x), "=r"(x.y)
               : "l"(from));
  return x;
}

// Is this the one thread of its warp, all of which call it, that does what one shall do? A compiler
// then knows that it is one: what it hands to the copy engine needs no loop over threads.
__device__ inline bool elect_one() {
  u32 is_one;
  asm volatile(
      "{\n.reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(is_one));
  return is_one != 0;
}

// A value that is the same in all lanes, said in a way that the compiler keeps it in a uniform
// register.
__device__ inline u32 uniform(u32 value) { return __shfl_sync(0xffffffff, value, 0); }

}  // namespace tegula::cuda
