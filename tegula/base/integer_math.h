// Integer arithmetic that C++ leaves undefined: the one definition that references, the tile
// language and its kernels share. Everything wraps (two's complement) and nothing traps:
//   a/0 is the largest value of the dtype, the smallest for a < 0, and 0 for a = 0; fmod(a, 0) =
//   remainder(a, 0) = a, which keeps a = b·q + r true whatever the quotient q of a division by zero
//   is said to be; a power with a negative exponent is the truncated 1/a^n, that is 0, or ±1 for a
//   = ±1; a shift by less than 0 or by the width and more moves every bit out: 0, or -1 where a
//   negative number is shifted right, which keeps its sign.
#pragma once

#include <cstdint>

#include "tegula/base/integer.h"

namespace tegula::integer {

// The sign of the dividend.
constexpr int64_t fmod(int64_t a, int64_t b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
// The sign of the divisor.
constexpr int64_t remainder(int64_t a, int64_t b) {
  const int64_t r = fmod(a, b);
  return r != 0 && b != 0 && (r < 0) != (b < 0) ? r + b : r;
}
// Rounded down.
constexpr int64_t floor_divide(DType t, int64_t a, int64_t b) {
  const int64_t q = divided_int(t, a, b);
  return b == 0 || b == -1 ? q : q - (a % b != 0 && (a < 0) != (b < 0));
}
constexpr int64_t pow(DType t, int64_t a, int64_t n) {
  if (n < 0) return a == 1 ? 1 : a == -1 ? 1 - 2 * (n & 1) : 0;
  uint64_t y = 1, square = static_cast<uint64_t>(a);
  for (; n > 0; n >>= 1, square *= square)
    if (n & 1) y *= square;
  return wrapped_int(t, static_cast<int64_t>(y));
}
constexpr int64_t shift_left(DType t, int64_t a, int64_t n) {
  return n < 0 || n >= size_bits(t)
             ? 0
             : wrapped_int(t, static_cast<int64_t>(static_cast<uint64_t>(a) << n));
}
constexpr int64_t shift_right(DType t, int64_t a, int64_t n) {
  return n < 0 || n >= size_bits(t) ? (a < 0 ? -1 : 0) : a >> n;
}

}  // namespace tegula::integer
