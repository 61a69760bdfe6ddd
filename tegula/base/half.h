// bf16, f16 and f8e4m3 storage types with round-to-nearest-even conversions from f32 (NaN stays
// NaN). f8e4m3 [Micikevicius et al. 2022, §3.1] has no infinities: 448 is the largest, and what is
// larger becomes 448.
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

struct f8e4m3 {
  uint8_t bits = 0;
  f8e4m3() = default;
  explicit f8e4m3(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    const uint32_t sign = (u >> 24) & 0x80u;
    const uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) {
      bits = static_cast<uint8_t>(sign | 0x7fu);
    } else if (a >= 0x43e00000u) {  // 448
      bits = static_cast<uint8_t>(sign | 0x7eu);
    } else if (a < 0x3c800000u) {  // subnormal: add 2^14 so that the FPU rounds at 2^-9
      const float magic = std::bit_cast<float>(a) + 0x1p14f;
      bits = static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(magic) - 0x46800000u));
    } else {
      const uint32_t r = a + 0x7ffffu + ((a >> 20) & 1) - 0x3c000000u;
      bits = static_cast<uint8_t>(sign | (r >> 20));
    }
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
    const uint32_t e = (bits >> 3) & 0xf, m = bits & 7;
    if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
    if (e == 0) {
      const float v = static_cast<float>(m) * 0x1p-9f;
      return sign ? -v : v;
    }
    return std::bit_cast<float>(sign | ((e + 120) << 23) | (m << 20));
  }
};

}  // namespace tegula
