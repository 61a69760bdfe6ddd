// Shared by the elementwise ops beyond elementwise.h's: scalar functions for their references, and
// references that treat integers as integers.
#pragma once

#include "tegula/base/integer_math.h"
#include "tegula/base/real.h"
#include "tegula/ops/common/elementwise.h"

namespace tegula {

namespace scalar {
#define TEGULA_SCALAR(name)                                     \
  inline double name(double x) { return __builtin_##name(x); }  \
  inline float name(float x) { return __builtin_##name##f(x); } \
  inline Counted name(Counted x) { return Counted::did(__builtin_##name(x.v)); }
TEGULA_SCALAR(trunc)
TEGULA_SCALAR(exp2)
TEGULA_SCALAR(expm1)
TEGULA_SCALAR(log2)
TEGULA_SCALAR(log10)
TEGULA_SCALAR(log1p)
TEGULA_SCALAR(tan)
TEGULA_SCALAR(asin)
TEGULA_SCALAR(acos)
TEGULA_SCALAR(atan)
TEGULA_SCALAR(sinh)
TEGULA_SCALAR(cosh)
TEGULA_SCALAR(asinh)
TEGULA_SCALAR(acosh)
TEGULA_SCALAR(atanh)
TEGULA_SCALAR(erfc)
#undef TEGULA_SCALAR
inline double round(double x) { return __builtin_nearbyint(x); }
inline float round(float x) { return __builtin_nearbyintf(x); }
inline Counted round(Counted x) { return Counted::did(__builtin_nearbyint(x.v)); }
#define TEGULA_SCALAR(name, function)                               \
  inline double name(double a, double b) { return function(a, b); } \
  inline float name(float a, float b) { return function(a, b); }    \
  inline Counted name(Counted a, Counted b) { return Counted::did(function(a.v, b.v)); }
TEGULA_SCALAR(fmod, real::fmod)
TEGULA_SCALAR(atan2, real::atan2)
TEGULA_SCALAR(hypot, real::hypot)
TEGULA_SCALAR(copysign, real::copysign)
TEGULA_SCALAR(remainder, real::remainder)
TEGULA_SCALAR(floor_divide, real::floor_divide)
#undef TEGULA_SCALAR
}  // namespace scalar

// Counted as one operation, whatever the type.
template <class S>
void count_one() {
  if constexpr (std::is_same_v<S, Counted>) ++Counted::flops();
}

// Floats by Real(a, b), integers by Int(dtype, a, b), exactly.
template <auto Real, auto Int>
struct ExactBinaryRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const DType t = a.out[0].dtype;
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      if (is_float(t)) return a.store_at(0, S(Real(a.load_at(0, i), a.load_at(1, i))), i);
      count_one<S>();
      a.store_i_at(0, Int(t, a.load_i_at(0, i), a.load_i_at(1, i)), i);
    });
  }
};
// Integers only.
template <auto Int>
struct IntegerRef {
  template <class S>
  void operator()(RefArgs<S>& a) const {
    const DType t = a.out[0].dtype;
    for_each_index(shape_of(a.out[0]), [&](const Index& i) {
      count_one<S>();
      a.store_i_at(0, Int(t, a.load_i_at(0, i), a.load_i_at(1, i)), i);
    });
  }
};

// The type rule of ops on integers and bool (or integers alone): all operands are alike.
Result<std::vector<DType>> bit_types(const OpCall& c, bool takes_bool);

// Binary samples, and one of integers with what is at the edge of their definitions.
std::vector<Sample> division_samples(double low, double high);
std::vector<Sample> shift_samples();

// y = a - b q, where q is constant but for jumps: fmod and remainder.
Grads rest_vjp(Builder& b, const VjpCall& c);

}  // namespace tegula
