// Operations counted by the kernels themselves, as they run: in builds for tests alone
// (-DTEGULA_COUNT=1, TEGULA_COUNT_FLOPS in the environment), never in timed ones. They count what a
// plan calls mathematical: no padding, and no value that is made a second time.
#pragma once

#ifndef TEGULA_COUNT
#define TEGULA_COUNT 0
#endif

// A host that plays the device must let it be found.
#ifndef TEGULA_EXPORTED
#define TEGULA_EXPORTED
#endif

#if TEGULA_COUNT
extern "C" {
TEGULA_EXPORTED __device__ unsigned long long tegula_flops = 0;
}
#endif

namespace tegula::cuda {

// For what only a count needs.
constexpr bool kCounts = TEGULA_COUNT;

__device__ inline void count_flops(unsigned long long n) {
#if TEGULA_COUNT
  if (n > 0) atomicAdd(&tegula_flops, n);
#endif
}

}  // namespace tegula::cuda
