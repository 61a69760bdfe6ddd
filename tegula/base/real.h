// Divisions of floats that <cmath> lacks, as NumPy and Python define them.
#pragma once

#include <cmath>

namespace tegula::real {

// a - b·⌊a/b⌋: the sign of the divisor, also of 0. remainder(a, 0) is NaN.
template <class T>
T remainder(T a, T b) {
  const T r = std::fmod(a, b);
  if (r == 0) return std::copysign(r, b);
  return std::signbit(r) != std::signbit(b) ? r + b : r;
}

// ⌊a/b⌋, found through the remainder, because a/b itself may round up to an integer. By 0 it is
// a/b; of an infinity NaN, as the remainder is.
template <class T>
T floor_divide(T a, T b) {
  const T q = a / b;
  if (b == 0 || q != q) return q;
  const T r = std::fmod(a, b);
  T whole = (a - r) / b;
  if (r != 0 && std::signbit(r) != std::signbit(b)) whole -= 1;
  return whole == 0 ? std::copysign(whole, q) : std::nearbyint(whole);
}

}  // namespace tegula::real
