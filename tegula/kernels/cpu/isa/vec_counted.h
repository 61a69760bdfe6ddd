// Vf that tells a ReadCounter (common/dot_reads.h) of every f32 it reads and writes: the portable
// vector under another name, so that a kernel's own source can be counted as it runs.
#pragma once

#include "tegula/kernels/cpu/common/dot_reads.h"

#define portable counted
#define load load_raw
#define load_n load_n_raw
#define store store_raw
#define store_n store_n_raw
#include "tegula/kernels/cpu/isa/vec_portable.h"
#undef portable
#undef load
#undef load_n
#undef store
#undef store_n

namespace tegula::kernel::counted {

TEGULA_VEC Vf load(const float* p) {
  ReadCounter::current()->read(p, kLanes);
  return load_raw(p);
}
TEGULA_VEC Vf load_n(const float* p, int n) {
  ReadCounter::current()->read(p, n);
  return load_n_raw(p, n);
}
TEGULA_VEC Vf broadcast(const float* p) {
  ReadCounter::current()->read(p, 1);
  return set1(*p);
}
TEGULA_VEC void store(float* p, Vf a) {
  ReadCounter::current()->write(p, kLanes);
  store_raw(p, a);
}
TEGULA_VEC void store_n(float* p, Vf a, int n) {
  ReadCounter::current()->write(p, n);
  store_n_raw(p, a, n);
}

}  // namespace tegula::kernel::counted
