// Passed by value by a launch of a matmul kernel: read by host and device code alike, so plain
// types only.
#pragma once

namespace tegula::cuda {

// The f32 rungs: c[m, n] = a[m, k] b[k, n], all row after row without gaps.
struct MatmulRungParams {
  const float *a, *b;
  float* c;
  int m, n, k;
};

// How the tiles of C are numbered: `group` rows of tiles at a time, column after column of those,
// so that the tiles in flight at once share rows of A and columns of B in the L2 cache.
struct TileOrder {
  int tiles_m, tiles_n, group;
};

// matmul_mma: bf16, strides between rows in elements.
struct MatmulMmaParams {
  const unsigned short *a, *b;
  unsigned short* c;
  long long lda, ldb, ldc;
  int m, n, k;
  TileOrder order;
};

// matmul_sm90: its tensors come as tensor maps.
struct MatmulSm90Params {
  unsigned short* c;  // for tiles that end within 16 bytes
  long long ldc;      // elements
  int m, n, k;
  int n_steps;  // slabs of 64 k, at least as many as a tile has boxes of 64 columns
  TileOrder order;
  int n_splits;            // of k, each into a c of its own; of several n_steps are one's
  long long split_stride;  // elements between them
  // f32 results are added to what lies in c; and then rounded into c16, as wide, which may be null.
  int adds;
  unsigned short* c16;
  const float* row_scale;  // c's rows, before they are rounded; null: none
  // For the variant that writes exponentials: a row's shift, in units of 1/log2(e), and their sums
  // by columns of tiles [m, tiles_n].
  const float* shift;
  float* sums;
  // Null, or: where 0 lies there, nothing is done, else rows of c are written whose total is NaN.
  const int* guard;
  const float* total;
};

// divergence: out[i] after n rounds of work on the path (of `paths`, a power of 2) of thread i:
// picked by its lane, or by its warp.
struct DivergenceParams {
  float* out;
  int paths, by_warp, n_rounds;
};

}  // namespace tegula::cuda
