// Elements that are computed with: as they lie in memory, and as values. 16 bits are f32 values.
//
// Variant, by -D: TEGULA_T the type of both; or TEGULA_BF16 1, or TEGULA_F16 1.
#pragma once

#include "tegula/kernels/cuda/ptx/types.cuh"

#ifndef TEGULA_BF16
#define TEGULA_BF16 0
#endif

namespace tegula::cuda {

#if TEGULA_BF16 || TEGULA_F16
using Stored = u16;
using Value = float;
__device__ inline Value value_of(Stored x) { return element_to_float(x); }
__device__ inline Stored stored_of(float x) { return static_cast<u16>(pack_element(x, 0.f)); }
#else
using Stored = TEGULA_T;
using Value = TEGULA_T;
__device__ inline Value value_of(Stored x) { return x; }
template <class T>
__device__ inline Stored stored_of(T x) {
  return static_cast<Stored>(x);
}
#endif

}  // namespace tegula::cuda
