// Integers wrap. Integer is the scalar that references of integer ops run on: 64 bits, of which a
// narrower element keeps the low ones, so that sums, differences and products wrap in every integer
// type, whatever the order of their terms.
#pragma once

#include <compare>
#include <cstdint>

#include "tegula/base/dtype.h"

namespace tegula {

// The least and the greatest value of an integer type or bool.
constexpr int64_t least_int(DType t) {
  return t == DType::kU8 || t == DType::kBool ? 0 : INT64_MIN >> (64 - size_bits(t));
}
constexpr int64_t greatest_int(DType t) {
  return t == DType::kBool ? 1 : t == DType::kU8 ? 255 : INT64_MAX >> (64 - size_bits(t));
}
// The value that an integer type has for v: v modulo 2^bits (two's complement); bool: v ≠ 0.
constexpr int64_t wrapped_int(DType t, int64_t v) {
  switch (t) {
    case DType::kI32:
      return static_cast<int32_t>(v);
    case DType::kI8:
      return static_cast<int8_t>(v);
    case DType::kU8:
      return static_cast<uint8_t>(v);
    case DType::kBool:
      return v != 0;
    default:
      return v;
  }
}
// A float as an integer type: truncated, the end of the range where it lies beyond, 0 for NaN; as
// bool: v ≠ 0.
constexpr int64_t truncated_int(DType t, double v) {
  if (t == DType::kBool) return v != 0;
  if (v != v) return 0;
  if (v >= 0x1p63) return greatest_int(t);
  if (v < -0x1p63) return least_int(t);
  const auto i = static_cast<int64_t>(v);
  return i < least_int(t) ? least_int(t) : i > greatest_int(t) ? greatest_int(t) : i;
}

struct Integer {
  int64_t v = 0;
  Integer() = default;
  constexpr explicit Integer(double x) : v(truncated_int(DType::kI64, x)) {}
  static constexpr Integer of(int64_t x) {
    Integer i;
    i.v = x;
    return i;
  }
  explicit operator double() const { return static_cast<double>(v); }
  static constexpr Integer wrap(uint64_t u) { return of(static_cast<int64_t>(u)); }
  constexpr uint64_t bits() const { return static_cast<uint64_t>(v); }
  friend constexpr Integer operator+(Integer a, Integer b) { return wrap(a.bits() + b.bits()); }
  friend constexpr Integer operator-(Integer a, Integer b) { return wrap(a.bits() - b.bits()); }
  friend constexpr Integer operator*(Integer a, Integer b) { return wrap(a.bits() * b.bits()); }
  friend constexpr Integer operator-(Integer a) { return wrap(-a.bits()); }
  Integer& operator+=(Integer b) { return *this = *this + b; }
  Integer& operator-=(Integer b) { return *this = *this - b; }
  Integer& operator*=(Integer b) { return *this = *this * b; }
  friend constexpr bool operator==(Integer, Integer) = default;
  friend constexpr auto operator<=>(Integer a, Integer b) { return a.v <=> b.v; }
};

// a / b, truncated. Of a division by 0 the end of the type's range on a's side (0 for 0 / 0); the
// least value by -1 wraps to itself.
constexpr int64_t divided_int(DType t, int64_t a, int64_t b) {
  if (b == 0) return a > 0 ? greatest_int(t) : a < 0 ? least_int(t) : 0;
  return b == -1 ? wrapped_int(t, Integer::wrap(-static_cast<uint64_t>(a)).v) : a / b;
}

}  // namespace tegula
