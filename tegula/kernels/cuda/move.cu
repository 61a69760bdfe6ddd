// Elements moved between tensors of any strides, and filled in.
//
// Variant, by -D: TEGULA_BYTES 1 | 2 | 4 | 8 | 16 of an element, TEGULA_ID64 0 | 1 of starts.
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

extern "C" __global__ void __launch_bounds__(256)
    move_strided(const __grid_constant__ MoveParams p) {
  begin_early();
  for (long long i = flat_thread(); i < p.to_loops.count; i += flat_threads())
    static_cast<MovedElement*>(p.to)[offset_of(p.to_loops, i, 0)] =
        static_cast<const MovedElement*>(p.from)[offset_of(p.from_loops, i, 0)];
}

#if TEGULA_BYTES <= 8
extern "C" __global__ void __launch_bounds__(256)
    fill_strided(const __grid_constant__ FillParams p) {
  begin_early();
  for (long long i = flat_thread(); i < p.loops.count; i += flat_threads())
    static_cast<MovedElement*>(p.to)[offset_of(p.loops, i, 0)] = static_cast<MovedElement>(p.value);
}
#endif

// Where the part of a tensor begins: starts are clamped, so that it lies inside.
__device__ __forceinline__ long long first_of(const UpdateParams& p, int tensor) {
  long long first = 0;
  for (int d = 0; d < p.loops.rank; ++d) {
    const long long start = id_at(p.start[d], 0);
    first += max(0LL, min(start, p.room[d])) * p.loops.stride[tensor][d];
  }
  return first;
}

extern "C" __global__ void __launch_bounds__(256)
    update_slice(const __grid_constant__ UpdateParams p) {
  begin_early();
  const long long first = first_of(p, 1);
  for (long long i = flat_thread(); i < p.loops.count; i += flat_threads())
    static_cast<MovedElement*>(p.to)[first + offset_of(p.loops, i, 1)] =
        static_cast<const MovedElement*>(p.from)[offset_of(p.loops, i, 0)];
}

// The reverse: a part of x.
extern "C" __global__ void __launch_bounds__(256) slice_at(const __grid_constant__ UpdateParams p) {
  begin_early();
  const long long first = first_of(p, 0);
  for (long long i = flat_thread(); i < p.loops.count; i += flat_threads())
    static_cast<MovedElement*>(p.to)[offset_of(p.loops, i, 1)] =
        static_cast<const MovedElement*>(p.from)[first + offset_of(p.loops, i, 0)];
}
