// FlushDenormals: while one lives, this thread reads and writes denormal numbers as zeros.
//
// Every thread that runs kernels does so, the caller's included, or bits would depend on which
// thread took a tile; the caller's own mode comes back afterwards. Denormals take a slow path in
// many processors (with N(0,1) tied embeddings they made training steps 2.8x slower). On x86-64 the
// bits FTZ and DAZ of MXCSR; elsewhere nothing changes: there results may differ from x86's in
// numbers below 2^-126, but still not between threads.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tegula {

class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(saved_); }
#else
  FlushDenormals() {}
#endif
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__x86_64__)
  unsigned saved_;
#endif
};

}  // namespace tegula
