// Counter-based random numbers: Philox4x32-10 [Salmon et al. 2011, §4].
//
// Output i of a stream depends only on (seed, stream, i), so any thread or rank may produce any
// part of it: that is what makes dropout and initialisation equal at every degree of parallelism.
#pragma once

#include <array>
#include <cstdint>

namespace tegula {

inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                          std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// philox_bits of the indices from 4 block on.
inline std::array<uint32_t, 4> philox_block(uint64_t seed, uint64_t stream, uint64_t block) {
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

// 32 random bits at `index` of stream (seed, stream).
inline uint32_t philox_bits(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox_block(seed, stream, index >> 2)[index & 3];
}

// Uniform in [0, 1), on a grid of 2^-24, exactly representable in f32.
inline float philox_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  return static_cast<float>(philox_bits(seed, stream, index) >> 8) * 0x1p-24f;
}

}  // namespace tegula
