// Passed by value by a launch of matvec.
#pragma once

namespace tegula::cuda {

// c[m, n] = a[m, k] b[k, n]; strides between rows as they lie, in elements.
struct MatvecParams {
  const void *a, *b;
  void* c;
  long long lda, ldb, ldc;
  int m, n, k;
  int is_settled;  // b may be read before the grid before has ended
  int passes;  // of b as [n, k] of 16 bits: groups of columns that a block has in turn, 1 or more
  int unused;
};

// Calls that begin with a tile program: so many of them at most, of so many rows; and floats of a
// that they have in shared memory at once.
inline constexpr int kMostMatvecsAfter = 8, kMostRowsAfter = 4, kFloatsAfter = 6144;
// The most calls that end with one.
inline constexpr int kMostMatvecsEnded = 4;
// The bytes of b as [n, k], on its way to a block; and what its alignment may cost.
inline constexpr int kRingBytes = 32 << 10, kRingAlign = 1024;

}  // namespace tegula::cuda
