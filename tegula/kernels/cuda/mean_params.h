// Passed by value by a launch of a rung of the mean of three neighbours.
#pragma once

namespace tegula::cuda {

constexpr int kMeanThreads = 128;  // of a block, an output each

// y[i] = (x[i] + x[i + 1] + x[i + 2]) / 3 for i < n: x has n + 2 elements.
struct MeanParams {
  const float* x;
  float* y;
  long long n;
  unsigned long long* reads;  // in builds that count: of global memory, of shared memory
};

}  // namespace tegula::cuda
