// Passed by value by a launch of max_pool.
#pragma once

namespace tegula::cuda {

constexpr int kPoolDims = 3;  // spatial; leading ones may have extent 1

// Strides count elements; planes are [n, c] of x and both results.
struct PoolParams {
  const void* x;
  void* y;
  int* places;
  long long channels, count;  // of c, and of results altogether
  long long plane_stride[3][2];
  long long x_size[kPoolDims], y_size[kPoolDims], kernel[kPoolDims], step[kPoolDims], lo[kPoolDims],
      dilation[kPoolDims];
  long long stride[3][kPoolDims];  // of x (0), y (1) and the places (2)
};

}  // namespace tegula::cuda
