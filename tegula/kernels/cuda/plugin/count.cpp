// The one way to the kernels' own counters from outside of the plug-in, for tests.
#include "tegula/kernels/cuda/count.h"

// -1: they cannot be read.
extern "C" __attribute__((visibility("default"))) int64_t tegula_cuda_counted_flops() {
  const auto n = tegula::cuda::counted_flops();
  return n.ok() ? *n : -1;
}
