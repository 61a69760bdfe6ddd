// A divergent branch's cost: the threads of a warp share one program counter, so when its lanes
// take p paths, the warp walks all p, with the other lanes switched off. Time and instructions grow
// p times if the path depends on the lane, and not at all if it depends on the warp.
#include "tegula/kernels/cuda/matmul_params.h"

namespace tegula::cuda {

// A dependent chain, the same length on each path; constants and text of its own keep the compiler
// from making one path of them.
#define TEGULA_PATH(i)                                                                        \
  case i:                                                                                     \
    for (int round = 0; round < p.n_rounds; ++round)                                          \
      asm volatile("fma.rn.f32 %0, %0, %1, %1;  // path " #i : "+f"(x) : "f"(1.f / (2 + i))); \
    break;
#define TEGULA_4_PATHS(i, j, k, l) TEGULA_PATH(i) TEGULA_PATH(j) TEGULA_PATH(k) TEGULA_PATH(l)

}  // namespace tegula::cuda

using namespace tegula::cuda;

// Any grid; every thread writes one float.
extern "C" __global__ void __launch_bounds__(256) divergence(const DivergenceParams p) {
  const int thread = blockIdx.x * blockDim.x + threadIdx.x;
  float x = 1;
  switch ((p.by_warp ? thread / 32 : thread % 32) & (p.paths - 1)) {
    TEGULA_4_PATHS(0, 1, 2, 3)
    TEGULA_4_PATHS(4, 5, 6, 7)
    TEGULA_4_PATHS(8, 9, 10, 11)
    TEGULA_4_PATHS(12, 13, 14, 15)
    TEGULA_4_PATHS(16, 17, 18, 19)
    TEGULA_4_PATHS(20, 21, 22, 23)
    TEGULA_4_PATHS(24, 25, 26, 27)
    TEGULA_4_PATHS(28, 29, 30, 31)
  }
  p.out[thread] = x;
}
#undef TEGULA_4_PATHS
#undef TEGULA_PATH
