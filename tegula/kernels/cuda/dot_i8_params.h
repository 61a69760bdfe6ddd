// Passed by value by a launch of dot_i8. Strides count elements.
#pragma once

namespace tegula::cuda {

// x [m, k] i8 and q, [k, n] i8 or [k / 2, n] of two weights a byte, have strides per row and
// column, and so have scale [groups, n] and y [m, n].
struct DotI8Params {
  const signed char *x, *q;
  const float *sx, *scale;
  float* y;
  long long m, n, group, groups;  // k is group · groups
  long long x_stride[2], q_stride[2], scale_stride[2], y_stride[2], sx_stride;
};

}  // namespace tegula::cuda
