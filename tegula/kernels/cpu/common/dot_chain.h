// One chain of a contraction as dot_naive runs it, over any element type.
#pragma once

#include <type_traits>

#include "tegula/kernels/cpu/common/contraction.h"

namespace tegula::kernel {

template <class In>
using Wide = std::conditional_t<
    std::is_same_v<In, double>, double,
    std::conditional_t<std::is_integral_v<In>, uint64_t, float>>;  // unsigned: integers wrap

inline double chain_step(double a, double b, double acc) { return __builtin_fma(a, b, acc); }
inline float chain_step(float a, float b, float acc) { return __builtin_fmaf(a, b, acc); }
inline uint64_t chain_step(uint64_t a, uint64_t b, uint64_t acc) { return a * b + acc; }

template <class In>
Wide<In> widen(const In& x) {
  return static_cast<Wide<In>>(x);
}

// The chain of one shard from `acc` on; a and b point at k = 0 of one output.
template <class In>
Wide<In> shard_sum(const Contraction& c, const In* a, const In* b, int64_t shard,
                   Wide<In> acc = {}) {
  for (int64_t k = shard * c.shard_k(); k < (shard + 1) * c.shard_k(); ++k)
    acc = chain_step(widen(a[c.k.offset(k, kA)]), widen(b[c.k.offset(k, kB)]), acc);
  return acc;
}

}  // namespace tegula::kernel
