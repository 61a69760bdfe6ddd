// Slices put where their ids say: elements that are moved (elements.cuh).
#pragma once

#include "tegula/kernels/cuda/elements.cuh"
#include "tegula/kernels/cuda/strided.cuh"

namespace tegula::cuda {

// Where nothing is joined the last of an id's slices stands: kThreads have one slice, and do
// nothing if a later one has its id. Blocks: those of a slice beside each other; a grid's number of
// them has 32 bits. In decoding this is latency and no more: the slice is loaded beside its id.
template <int kThreads>
__device__ __forceinline__ void put_slice(const IndexParams& p, u32 block, u32 thread) {
  constexpr int kColumns = kPutColumns;
  const u32 across =
      static_cast<u32>((p.inner.count + kThreads * kColumns - 1) / (kThreads * kColumns));
  const u32 slice = block / across, n = static_cast<u32>(p.index.count);
  const u32 o = slice / n, i = slice % n;
  const long long column = static_cast<long long>(block % across) * kThreads * kColumns;
  const long long ids = offset_of(p.outer, o, 2);
  const long long id = id_at(p.ids, ids + offset_of(p.index, i, 2));
  const Stored* y =
      static_cast<const Stored*>(p.y) + offset_of(p.outer, o, 1) + offset_of(p.index, i, 1);
  Stored of[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const long long q = column + c * kThreads + thread;
    if (q < p.inner.count) of[c] = y[offset_of(p.inner, q, 1)];
  }
  if (id < 0 || id >= p.n) return;
  if (i + 1 < n) {
    bool is_later = false;
#pragma unroll 4
    for (u32 k = i + 1 + thread; k < n; k += kThreads)
      is_later = is_later || id_at(p.ids, ids + offset_of(p.index, k, 2)) == id;
    if (kThreads == 32 ? __any_sync(0xffffffffu, is_later) : __syncthreads_or(is_later)) return;
  }
  Stored* x = static_cast<Stored*>(p.x) + offset_of(p.outer, o, 0) + id * p.n_stride;
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    const long long q = column + c * kThreads + thread;
    if (q < p.inner.count) x[offset_of(p.inner, q, 0)] = of[c];
  }
}

}  // namespace tegula::cuda
