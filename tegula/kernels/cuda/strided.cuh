// Loops over tensors of any strides, and elements of 1 to 16 bytes that are only moved.
#pragma once

#include "tegula/kernels/cuda/count.cuh"
#include "tegula/kernels/cuda/ptx/sync.cuh"
#include "tegula/kernels/cuda/ptx/types.cuh"
#include "tegula/kernels/cuda/strided_params.h"

// 1: no tensor needs more than one loop. Where two may be, the kernels call a function, and what
// they keep across it costs them registers and local memory.
#ifndef TEGULA_FLAT
#define TEGULA_FLAT 0
#endif

// Bytes of an element.
#ifndef TEGULA_BYTES
#define TEGULA_BYTES 4
#endif

namespace tegula::cuda {

template <int kBytes>
struct Moved;
template <>
struct Moved<1> {
  using Type = u8;
};
template <>
struct Moved<2> {
  using Type = u16;
};
template <>
struct Moved<4> {
  using Type = u32;
};
template <>
struct Moved<8> {
  using Type = u64;
};
template <>
struct Moved<16> {
  using Type = uint4;
};
using MovedElement = Moved<TEGULA_BYTES>::Type;

// The offset in two loops or more. A function of its own, since kernels ask for many offsets, and
// compiling each in its place takes seconds. Indices below 2^32 take short divisions.
__device__ __noinline__ inline long long offset_in_loops(const LoopParams& l, long long i,
                                                         int tensor) {
  long long offset = 0;
  if (l.count <= 0xffffffffLL) {
    u32 rest = static_cast<u32>(i);
    for (int d = l.rank - 1; d > 0; --d) {
      const u32 extent = static_cast<u32>(l.extent[d]);
      offset += static_cast<long long>(rest % extent) * l.stride[tensor][d];
      rest /= extent;
    }
    return offset + static_cast<long long>(rest) * l.stride[tensor][0];
  }
  for (int d = l.rank - 1; d > 0; --d) {
    offset += i % l.extent[d] * l.stride[tensor][d];
    i /= l.extent[d];
  }
  return offset + i * l.stride[tensor][0];
}

// The offset of flat index i, row-major, in one tensor. Kernels take the loops as a
// __grid_constant__, so that they are not copied to have an address.
__device__ inline long long offset_of(const LoopParams& l, long long i, int tensor) {
  if (TEGULA_FLAT || l.rank <= 1) return l.rank == 0 ? 0 : i * l.stride[tensor][0];
  return offset_in_loops(l, i, tensor);
}

struct Divided {
  long long quotient, rest;
};
// a / b of numbers that are not negative: short ones take a short division.
__device__ inline Divided divided(long long a, long long b) {
  if ((a | b) <= 0xffffffffLL) {
    const u32 q = static_cast<u32>(a) / static_cast<u32>(b);
    return {q, static_cast<u32>(a) - q * static_cast<u32>(b)};
  }
  return {a / b, a % b};
}

__device__ inline long long flat_thread() {
  return static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline long long flat_threads() {
  return static_cast<long long>(gridDim.x) * blockDim.x;
}

__device__ inline long long id_at(const void* ids, long long at) {
#if TEGULA_ID64
  return static_cast<const long long*>(ids)[at];
#else
  return static_cast<const int*>(ids)[at];
#endif
}

}  // namespace tegula::cuda
