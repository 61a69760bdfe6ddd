// What a launch of matvec passes by value.
#pragma once

namespace tegula::cuda {

// c[m, n] = a[m, k] b[k, n]; strides between rows as they lie, in elements.
struct MatvecParams {
  const void *a, *b;
  void* c;
  long long lda, ldb, ldc;
  int m, n, k, unused;
};

}  // namespace tegula::cuda
