// The largest of every window and where it lies: the first of equals, but NaN wins over all.
//
// Variant, by -D: TEGULA_T the elements' type, or TEGULA_BF16 1 or TEGULA_F16 1 of 16 bits.
#include "tegula/kernels/cuda/elements.cuh"
#include "tegula/kernels/cuda/pool_params.h"
#include "tegula/kernels/cuda/strided.cuh"

using namespace tegula::cuda;

// A thread a window, neighbours beside each other.
extern "C" __global__ void __launch_bounds__(256) max_pool(const __grid_constant__ PoolParams p) {
  begin_early();
  for (long long e = flat_thread(); e < p.count; e += flat_threads()) {
    long long rest = e, o[kPoolDims], origin[kPoolDims];
#pragma unroll
    for (int i = kPoolDims - 1; i >= 0; --i) {
      o[i] = rest % p.y_size[i], rest /= p.y_size[i];
      origin[i] = o[i] * p.step[i] - p.lo[i];
    }
    const long long c = rest % p.channels, n = rest / p.channels;
    const auto at = [&](int tensor, const long long(&i)[kPoolDims]) {
      return n * p.plane_stride[tensor][0] + c * p.plane_stride[tensor][1] +
             i[0] * p.stride[tensor][0] + i[1] * p.stride[tensor][1] + i[2] * p.stride[tensor][2];
    };
    Value best = 0;
    long long place = -1;
    for (long long a = 0; a < p.kernel[0]; ++a)
      for (long long b = 0; b < p.kernel[1]; ++b)
        for (long long k = 0; k < p.kernel[2]; ++k) {
          const long long i[kPoolDims] = {origin[0] + a * p.dilation[0],
                                          origin[1] + b * p.dilation[1],
                                          origin[2] + k * p.dilation[2]};
          if (i[0] < 0 || i[0] >= p.x_size[0] || i[1] < 0 || i[1] >= p.x_size[1] || i[2] < 0 ||
              i[2] >= p.x_size[2])
            continue;
          const Value v = value_of(static_cast<const Stored*>(p.x)[at(0, i)]);
          if (place >= 0 && !(v > best) && (v == v || best != best)) continue;
          best = v, place = (i[0] * p.x_size[1] + i[1]) * p.x_size[2] + i[2];
        }
    static_cast<Stored*>(p.y)[at(1, o)] = stored_of(best);
    p.places[at(2, o)] = static_cast<int>(place);
  }
}
