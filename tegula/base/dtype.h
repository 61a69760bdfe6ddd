// Element types. Floats round to nearest even at every store; bool is one byte, 0 or 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tegula {

enum class DType : uint8_t { kF64, kF32, kBF16, kF16, kI64, kI32, kI8, kU8, kBool, kF8E4M3 };

inline constexpr DType kAllDTypes[] = {DType::kF64,  DType::kF32,   DType::kBF16, DType::kF16,
                                       DType::kI64,  DType::kI32,   DType::kI8,   DType::kU8,
                                       DType::kBool, DType::kF8E4M3};

// Bits, not bytes, so that int4 has room later.
constexpr int size_bits(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64:
      return 64;
    case DType::kF32:
    case DType::kI32:
      return 32;
    case DType::kBF16:
    case DType::kF16:
      return 16;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
      return 8;
  }
  return 0;
}
constexpr int size_bytes(DType t) { return size_bits(t) / 8; }
constexpr bool is_float(DType t) { return t <= DType::kF16 || t == DType::kF8E4M3; }
constexpr bool is_int(DType t) { return t >= DType::kI64 && t <= DType::kU8; }

constexpr std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::kF64:
      return "f64";
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI64:
      return "i64";
    case DType::kI32:
      return "i32";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
    case DType::kBool:
      return "bool";
    case DType::kF8E4M3:
      return "f8e4m3";
  }
  return "?";
}

constexpr std::optional<DType> parse_dtype(std::string_view s) {
  for (DType t : kAllDTypes)
    if (dtype_name(t) == s) return t;
  return std::nullopt;
}

// The type that sums over a float type are kept in: f64 for f64, f32 for any other.
constexpr DType accumulator(DType t) { return t == DType::kF64 ? t : DType::kF32; }

// The spacing of floats just above 1: 2^-52, 2^-23, 2^-7, 2^-10, 2^-3; 0 for integers.
constexpr double epsilon(DType t) {
  switch (t) {
    case DType::kF64:
      return 0x1p-52;
    case DType::kF32:
      return 0x1p-23;
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    case DType::kF8E4M3:
      return 0x1p-3;
    default:
      return 0;
  }
}

}  // namespace tegula
