// The tensor memory accelerator: one thread asks for a box of a tensor, the copy engine moves it.
//
// Tensors here have 4 dims, fastest first: (column, row, head, batch). A box is 64 columns of 16
// bits (128 bytes) times some rows; it lies in shared memory row after row, 128 bytes each, with
// the 16-byte chunk c of row r at place c ^ (r % 8) (the 128-byte swizzle), in memory aligned to
// 1024 bytes. Rows past the tensor's end read as zero and are not written.
#pragma once

#include "tegula/kernels/cuda/ptx/bulk.cuh"

namespace tegula::cuda {

constexpr int kBoxColumns = 64;
constexpr int kRowBytes = 128;

// Byte offset of the 16-byte chunk `chunk` (0..7) of row `row` in a swizzled box.
__device__ inline u32 swizzled(u32 row, u32 chunk) {
  return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

__device__ inline void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ inline void tma_load(void* dst, const TensorMap* map, Barrier* full, u64 policy,
                                int column, int row, int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(smem_address(dst)),
      "l"(map), "r"(smem_address(full)), "l"(policy), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

__device__ inline void tma_store(const TensorMap* map, const void* src, int column, int row,
                                 int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], "
      "[%1];" ::"l"(map),
      "r"(smem_address(src)), "r"(column), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

// After any of the stores above.
__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until the committed stores of this thread, but for the last kPending commits, no longer read
// shared memory (they may still be on their way to global memory).
template <int kPending = 0>
__device__ inline void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Until the committed stores of this thread are done, and it has seen them.
__device__ inline void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace tegula::cuda
