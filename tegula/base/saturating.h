// Sums and products that stop at the ends of int64_t: for arithmetic on sizes and attributes that
// nobody has checked yet, and for counts. A comparison with a bound then gives what the exact
// number would.
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

// A sum of products of counts that are at least 0. `n` is exact below kUncountable, which stands
// for itself and all beyond: who promises an exact count refuses it.
inline constexpr int64_t kUncountable = INT64_MAX;
struct Count {
  int64_t n = 0;
  constexpr Count(int64_t count) : n(count) {}
  friend constexpr Count operator+(Count a, Count b) { return saturating_add(a.n, b.n); }
  friend constexpr Count operator*(Count a, Count b) { return saturating_mul(a.n, b.n); }
};

// How far a counter has come that may have passed the end of int64_t on the way.
constexpr int64_t counted_since(int64_t now, int64_t before) {
  return static_cast<int64_t>(static_cast<uint64_t>(now) - static_cast<uint64_t>(before));
}

}  // namespace tegula
