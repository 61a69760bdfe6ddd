// Passed by value by launches of the kernels that move, index and sum tensors of any strides: plain
// types only. Strides and offsets count elements.
#pragma once

namespace tegula::cuda {

constexpr int kMostLoops = 8;
// The columns of a slice that a thread of put (put.cuh) has.
constexpr int kPutColumns = 4;

// Nested loops, outermost first, with the strides of up to three tensors.
struct LoopParams {
  int rank;
  long long count;  // the product of the extents
  long long extent[kMostLoops];
  long long stride[3][kMostLoops];
};

// to[i] = from[i] in row-major order of each one's own loops (strides 0).
struct MoveParams {
  const void* from;
  void* to;
  LoopParams from_loops, to_loops;
};

// to[i] = value, whose lowest bytes count.
struct FillParams {
  void* to;
  unsigned long long value;
  LoopParams loops;
};

// y[o, i, q] and x[o, ids[o, i], q]: outer has the strides of x, y and ids, index those of y (1)
// and ids (2), inner those of x and y.
struct IndexParams {
  void *x, *y;
  const void* ids;
  LoopParams outer, index, inner;
  long long n, n_stride;  // the indexed dim of x
};

// Rows without outer loops, where rows lie in one piece: row i of y to row ids[i] of x, `bytes`
// each, multiples of 16 like the steps between rows.
struct RowsParams {
  char* x;
  const char* y;
  const int* ids;
  long long x_step, y_step;
  int n, n_ids, bytes, unused;  // n: rows of x
};
constexpr int kRowTaskBytes = 512;

// A scatter's, and its ids in rows [outer][index], n for those outside of x; once they are in
// order, also where they were.
struct ScatterParams {
  IndexParams call;
  int *ids, *places;
};

// Slices of an update, at starts that lie on the device: to[start + i] = from[i].
struct UpdateParams {
  const void* from;
  void* to;
  LoopParams loops;  // of the update: strides of from (0) and to (1)
  const void* start[kMostLoops];
  long long room[kMostLoops];  // the largest start
};

// out[i] = the sum of x over the loops of `reduced`: strides of x (0) and of out (1).
struct ReduceParams {
  const void* x;
  void* out;
  float* parts;  // [n_parts, kept.count], of all chunks but one alone
  LoopParams kept, reduced;
  long long chunk;  // of the reduced, one chain
  int n_parts;
};

// Lines along one dim: strides of x (0), of a result (1) and of a second one (2).
struct LineParams {
  const void* x;
  void *y, *z;
  LoopParams lines;  // all dims but that one
  long long n, step[3];
  int k;            // top_k
  int is_smallest;  // argmin
  int is_reverse;   // cummax: places count from the end
};

}  // namespace tegula::cuda
