// Divisions of floats that <cmath> lacks, as NumPy and Python define them; and what of it takes two
// floats, for <cmath> itself takes longer to parse than most ops take to compile.
#pragma once

namespace tegula::real {

inline double fmod(double a, double b) { return __builtin_fmod(a, b); }
inline float fmod(float a, float b) { return __builtin_fmodf(a, b); }
inline double atan2(double a, double b) { return __builtin_atan2(a, b); }
inline float atan2(float a, float b) { return __builtin_atan2f(a, b); }
inline double hypot(double a, double b) { return __builtin_hypot(a, b); }
inline float hypot(float a, float b) { return __builtin_hypotf(a, b); }
inline double copysign(double a, double b) { return __builtin_copysign(a, b); }
inline float copysign(float a, float b) { return __builtin_copysignf(a, b); }
inline double nearbyint(double a) { return __builtin_nearbyint(a); }
inline float nearbyint(float a) { return __builtin_nearbyintf(a); }
inline bool signbit(double a) { return __builtin_signbit(a); }
inline bool signbit(float a) { return __builtin_signbitf(a); }

// a - b·⌊a/b⌋: the sign of the divisor, also of 0. remainder(a, 0) is NaN.
template <class T>
T remainder(T a, T b) {
  const T r = fmod(a, b);
  if (r == 0) return copysign(r, b);
  return signbit(r) != signbit(b) ? r + b : r;
}

// ⌊a/b⌋, found through the remainder, because a/b itself may round up to an integer. By 0 it is
// a/b; of an infinity NaN, as the remainder is.
template <class T>
T floor_divide(T a, T b) {
  const T q = a / b;
  if (b == 0 || q != q) return q;
  const T r = fmod(a, b);
  T whole = (a - r) / b;
  if (r != 0 && signbit(r) != signbit(b)) whole -= 1;
  return whole == 0 ? copysign(whole, q) : nearbyint(whole);
}

}  // namespace tegula::real
