#include "tegula/io/sha256.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tegula {
namespace {

// Fractional parts of the cube roots of the first 64 primes (FIPS 180-4, 4.2.2).
alignas(64) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_be(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

// One round; the caller rotates the names instead of moving eight registers.
inline void round(uint32_t a, uint32_t b, uint32_t c, uint32_t& d, uint32_t e, uint32_t f,
                  uint32_t g, uint32_t& h, uint32_t kw) {
  const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
  const uint32_t t1 = h + s1 + (g ^ (e & (f ^ g))) + kw;
  const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
  d += t1;
  h = t1 + s0 + ((a & b) | (c & (a | b)));
}

void compress_scalar(uint32_t state[8], const uint8_t* blocks, size_t n_blocks) {
  for (; n_blocks > 0; --n_blocks, blocks += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = load_be(blocks + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
      const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < 64; i += 8) {
      round(a, b, c, d, e, f, g, h, kRound[i] + w[i]);
      round(h, a, b, c, d, e, f, g, kRound[i + 1] + w[i + 1]);
      round(g, h, a, b, c, d, e, f, kRound[i + 2] + w[i + 2]);
      round(f, g, h, a, b, c, d, e, kRound[i + 3] + w[i + 3]);
      round(e, f, g, h, a, b, c, d, kRound[i + 4] + w[i + 4]);
      round(d, e, f, g, h, a, b, c, kRound[i + 5] + w[i + 5]);
      round(c, d, e, f, g, h, a, b, kRound[i + 6] + w[i + 6]);
      round(b, c, d, e, f, g, h, a, kRound[i + 7] + w[i + 7]);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
  }
}

#if defined(__x86_64__)
// The instructions hold the state as (a,b,e,f) and (c,d,g,h), and run two rounds each.
__attribute__((target("sha,sse4.1,ssse3"))) void compress_sha_ni(uint32_t state[8],
                                                                 const uint8_t* blocks,
                                                                 size_t n_blocks) {
  const __m128i byte_swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  auto* words = reinterpret_cast<__m128i*>(state);
  const __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128(words), 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128(words + 1), 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; n_blocks > 0; --n_blocks, blocks += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      const auto* in = reinterpret_cast<const __m128i*>(blocks) + i;
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(in), byte_swap);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {  // four rounds each, with words 4i … 4i+3
      if (i >= 4) {
        const __m128i middle = _mm_alignr_epi8(w[(i + 3) & 3], w[(i + 2) & 3], 4);
        __m128i next = _mm_sha256msg1_epu32(w[i & 3], w[(i + 1) & 3]);
        next = _mm_add_epi32(next, middle);
        w[i & 3] = _mm_sha256msg2_epu32(next, w[(i + 3) & 3]);
      }
      const auto* k = reinterpret_cast<const __m128i*>(kRound) + i;
      const __m128i kw = _mm_add_epi32(w[i & 3], _mm_load_si128(k));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, kw);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(kw, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(words, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(words + 1, _mm_alignr_epi8(dchg, feba, 8));
}

bool detect_sha() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_SSE4_1) || !(c & bit_SSSE3)) return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
}
#else
bool detect_sha() { return false; }
#endif

}  // namespace

bool Sha256::has_sha_instructions() {
  static const bool has = detect_sha();
  return has;
}

Sha256::Sha256(Isa isa)
    : compress_(compress_scalar),
      // Fractional parts of the square roots of the first 8 primes (FIPS 180-4, 5.3.3).
      state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
#if defined(__x86_64__)
  if (isa == Isa::kBest && has_sha_instructions()) compress_ = compress_sha_ni;
#else
  (void)isa;
#endif
}

void Sha256::update(const void* data, size_t n_bytes) {
  if (n_bytes == 0) return;
  const auto* in = static_cast<const uint8_t*>(data);
  const size_t held = n_bytes_ % 64;
  n_bytes_ += n_bytes;
  if (held > 0) {
    const size_t take = std::min(64 - held, n_bytes);
    std::memcpy(pending_ + held, in, take);
    in += take, n_bytes -= take;
    if (held + take < 64) return;
    compress_(state_, pending_, 1);
  }
  compress_(state_, in, n_bytes / 64);
  std::memcpy(pending_, in + n_bytes / 64 * 64, n_bytes % 64);
}

std::array<uint8_t, 32> Sha256::finish() {
  const uint64_t n_bits = n_bytes_ * 8;
  const size_t held = n_bytes_ % 64;
  uint8_t padding[72] = {0x80};
  const size_t n_zeros_end = held < 56 ? 56 - held : 120 - held;
  for (size_t i = 0; i < 8; ++i)
    padding[n_zeros_end + i] = static_cast<uint8_t>(n_bits >> (56 - 8 * i));
  update(padding, n_zeros_end + 8);
  std::array<uint8_t, 32> digest;
  for (size_t i = 0; i < 32; ++i)
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string Sha256::finish_hex() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (uint8_t byte : finish()) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish_hex();
}

}  // namespace tegula
