// Passed by value by launches of sort and searchsorted. Strides and offsets count elements.
#pragma once

#include "tegula/kernels/cuda/strided_params.h"

namespace tegula::cuda {

constexpr int kSortTile = 2048;  // of a row, that a block has in order at once

// Rows of values and of where they were: strides of x (0, or of the values so far), of the values
// (1) and of the places (2).
struct SortParams {
  const void* x;
  const int* places;  // of the values so far, as x lies; a merge alone
  void* values;
  int* indices;
  LoopParams rows;
  long long n, step[3];
  long long run;  // whose elements are in order before a merge
  int is_descending;
};

// y[row, j] = how many of sorted[row] are before x[row, j]: strides of sorted (0), x (1), y (2).
struct SearchParams {
  const void *sorted, *x;
  int* y;
  LoopParams rows;
  long long n, m, step[3];
  int is_right;
};

}  // namespace tegula::cuda
