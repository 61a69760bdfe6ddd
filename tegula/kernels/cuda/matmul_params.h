// What a launch of a matmul kernel passes by value: read by host and device code alike, so plain
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
  const float* row_scale;  // c's rows, before they are rounded; null: none
  const int* guard;        // null, or 0 there: nothing is done
};

// Of the product that writes a softmax's exponentials (logits_sm90.cu).
struct LogitsEpilogue {
  unsigned short* e;
  long long row;  // elements between rows, a multiple of 64
  const float* shift;
  float* sums;
  long long n_sums;
};

// divergence: out[i] after n rounds of work on the path (of `paths`, a power of 2) of thread i:
// picked by its lane, or by its warp.
struct DivergenceParams {
  float* out;
  int paths, by_warp, n_rounds;
};

}  // namespace tegula::cuda
