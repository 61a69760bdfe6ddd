// Sums and products that stop at the ends of int64_t: for arithmetic on sizes and attributes that
// nobody has checked yet. A comparison with a bound then gives what the exact number would.
#pragma once

#include <cstdint>

namespace tegula {

constexpr int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? INT64_MIN : INT64_MAX;
}
constexpr int64_t saturating_mul(int64_t a, int64_t b) {
  int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}

}  // namespace tegula
