// bf16 and f16 storage types with round-to-nearest-even conversions from f32 (NaN stays NaN).
#pragma once

#include <bit>
#include <cstdint>

namespace tegula {

struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float f) {
    uint32_t u = std::bit_cast<uint32_t>(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((u >> 16) | 0x40);  // quiet NaN: rounding could make it inf
    } else {
      bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
    }
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

struct f16 {
  uint16_t bits = 0;
  f16() = default;
  explicit f16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) {
      bits = static_cast<uint16_t>(sign | 0x7e00u);
    } else if (a >= 0x477ff000u) {  // 65520 and above round to infinity
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (a < 0x38800000u) {  // subnormal: add 0.5 so that the FPU rounds at the right bit
      const float magic = std::bit_cast<float>(a) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(magic) - 0x3f000000u));
    } else {
      const uint32_t r = a + 0xfffu + ((a >> 13) & 1) - 0x38000000u;
      bits = static_cast<uint16_t>(sign | (r >> 13));
    }
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t e = (bits >> 10) & 0x1f;
    const uint32_t m = bits & 0x3ff;
    if (e == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (m << 13));
    if (e == 0) {
      const float v = static_cast<float>(m) * 0x1p-24f;
      return sign ? -v : v;
    }
    return std::bit_cast<float>(sign | ((e + 112) << 23) | (m << 13));
  }
};

}  // namespace tegula
