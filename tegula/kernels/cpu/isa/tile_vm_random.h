// A run of philox_uniform (base/philox.h), four counters at a time.
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

typedef uint64_t U64x4 __attribute__((vector_size(32)));

// The product of the low halves.
TEGULA_VEC U64x4 mul_wide(U64x4 a, uint64_t m) {
#if defined(__AVX2__)
  return reinterpret_cast<U64x4>(
      _mm256_mul_epu32(reinterpret_cast<__m256i>(a), _mm256_set1_epi64x(static_cast<int64_t>(m))));
#else
  return (a & 0xffffffffu) * m;
#endif
}

// The 16 words of blocks b .. b+3; only the low half of each lane of the state has a meaning.
TEGULA_VEC void philox_blocks(uint64_t seed, uint64_t stream, uint64_t b, uint32_t* out) {
  const U64x4 block = U64x4{b, b + 1, b + 2, b + 3};
  U64x4 c0 = block, c1 = block >> 32;
  U64x4 c2 = U64x4{} + (stream & 0xffffffffu), c3 = U64x4{} + (stream >> 32);
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma GCC unroll unrolled(10)
  for (int round = 0; round < 10; ++round) {
    const U64x4 p0 = mul_wide(c0, 0xD2511F53u), p1 = mul_wide(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ uint64_t { k0 };
    c2 = (p0 >> 32) ^ c3 ^ uint64_t { k1 };
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  const U64x4 front = (c0 & 0xffffffffu) | (c1 << 32), back = (c2 & 0xffffffffu) | (c3 << 32);
  const U64x4 low = __builtin_shufflevector(front, back, 0, 4, 1, 5);
  const U64x4 high = __builtin_shufflevector(front, back, 2, 6, 3, 7);
  std::memcpy(out, &low, 32);
  std::memcpy(out + 8, &high, 32);
}

// out[i] = philox_uniform(seed, stream, start + i), i < n.
TEGULA_VEC void philox_run(uint64_t seed, uint64_t stream, uint64_t start, float* out, int64_t n) {
  for (int64_t i = 0; i < n;) {
    alignas(32) uint32_t words[16];
    alignas(32) float uniform[16];
    const uint64_t at = start + static_cast<uint64_t>(i);
    philox_blocks(seed, stream, at >> 2, words);
    for (int j = 0; j < 16; j += kLanes) {
      int32_t lanes[kLanes];
      std::memcpy(lanes, words + j, sizeof lanes);
      store(uniform + j, to_float(shr<8>(loadi(lanes))) * set1(0x1p-24f));
    }
    const auto skip = static_cast<int64_t>(at & 3);
    const int64_t have = 16 - skip < n - i ? 16 - skip : n - i;
    std::memcpy(out + i, uniform + skip, static_cast<size_t>(have) * sizeof(float));
    i += have;
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
