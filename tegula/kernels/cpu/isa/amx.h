// The eight tile registers of AMX: 16 rows of 64 bytes each, and the two products we use.
//
//   dot_bytes<C, A, B>: C[m][n] += Σ_p Σ_i A[m][4p+i]·B[p][n][i], 16 × 16 i32 sums (modulo 2^32) of
//   signed bytes A [16 rows][64 k] by unsigned ones B [16 quads of k][16 columns][4] (TDPBSUD).
//
//   dot<C, A, B>: C[m][n] += Σ_p A[m][2p]·B[p][2n] + A[m][2p+1]·B[p][2n+1], 16 × 16 f32 sums of
//   bf16 products; A is [16 rows][32 k], B is [16 pairs of k][16 columns][2].
//
// Order "amx_pairs" (the instruction's own, TDPBF16PS): over 32 k at a time, products of even k are
// one ascending chain of fused multiply-adds from 0, those of odd k another; C + (even + odd), each
// sum rounded once to nearest even, denormals flushed. Where the compiler has no AMX the same is
// done in vectors, operation by operation, so that kernels over tiles run, and are tested,
// anywhere; bits are equal. [Intel 64 Software Developer's Manual, volume 2, TDPBF16PS]
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

inline constexpr int kTile = 16;       // rows of a tile, and its columns of f32
inline constexpr int kTilePairs = 32;  // bf16 in a row: k of one product
inline constexpr int kTileBytes = 1024;
inline constexpr int kStrip = 2 * kTile;  // kernels go over two by two tiles of sums

#define TEGULA_TILE inline __attribute__((always_inline))

#if defined(__AMX_BF16__) && defined(__AMX_TILE__)

// Inline assembly, because GCC's intrinsics do not say that they read and write memory. A thread
// owns the registers while a Tiles lives: a task makes one, and gives them back at its end.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    asm volatile("ldtilecfg %0" ::"m"(config));
  }
  ~Tiles() { asm volatile("tilerelease" ::); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kT>
  TEGULA_TILE void clear() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kT));
  }
  // Rows lie `stride` bytes apart.
  template <int kT>
  TEGULA_TILE void load(const void* p, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kT) : "memory");
  }
  // The same for what the first cache is too small to keep.
  template <int kT>
  TEGULA_TILE void load_stream(const void* p, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(p), "r"(stride), "i"(kT) : "memory");
  }
  template <int kT>
  TEGULA_TILE void store(void* p, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(p), "r"(stride), "i"(kT) : "memory");
  }
  template <int kC, int kA, int kB>
  TEGULA_TILE void dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  template <int kC, int kA, int kB>
  TEGULA_TILE void dot_bytes() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

#else

class Tiles {
 public:
  template <int kT>
  void clear() {
    std::memset(tile_[kT], 0, kTileBytes);
  }
  template <int kT>
  void load(const void* p, int64_t stride) {
    for (int i = 0; i < kTile; ++i)
      std::memcpy(tile_[kT][i], static_cast<const char*>(p) + i * stride, 64);
  }
  template <int kT>
  void load_stream(const void* p, int64_t stride) {
    load<kT>(p, stride);
  }
  template <int kT>
  void store(void* p, int64_t stride) {
    for (int i = 0; i < kTile; ++i)
      std::memcpy(static_cast<char*>(p) + i * stride, tile_[kT][i], 64);
  }
  template <int kC, int kA, int kB>
  void dot() {
    dot_tiles(tile_[kC], tile_[kA], tile_[kB]);
  }
  template <int kC, int kA, int kB>
  void dot_bytes() {
    const auto* a = reinterpret_cast<const int8_t*>(tile_[kA]);
    const auto* b = reinterpret_cast<const uint8_t*>(tile_[kB]);
    for (int m = 0; m < kTile; ++m)
      for (int n = 0; n < kTile; ++n) {
        uint32_t sum = 0;
        for (int k = 0; k < 64; ++k)
          sum += static_cast<uint32_t>(a[m * 64 + k] * b[k / 4 * 64 + n * 4 + k % 4]);
        tile_[kC][m][n] = static_cast<int32_t>(static_cast<uint32_t>(tile_[kC][m][n]) + sum);
      }
  }

 private:
  using Rows = int32_t[kTile][kTile];

  static void dot_tiles(Rows& c, const Rows& a, const Rows& b) {
    for (int m = 0; m < kTile; ++m)
      for (int n = 0; n < kTile; n += kLanes) {
        Vf even = zero(), odd = zero();
        for (int p = 0; p < kTile; ++p) {
          const Vi x = set1i(a[m][p]), y = loadi(&b[p][n]), high = set1i(INT32_MIN >> 15);
          even = fma(as_float(shl<16>(x)), as_float(shl<16>(y)), even);
          odd = fma(as_float(x & high), as_float(y & high), odd);
        }
        storei(&c[m][n], bits(as_float(loadi(&c[m][n])) + (even + odd)));
      }
  }

  alignas(64) Rows tile_[8];
};

#endif

// Where the operands of kM × kN tiles of sums lie, in bytes. A's tiles: rows a_stride apart, the
// second tile of rows a_next on, the next k a_k on. B's are packed: the second tile of columns
// b_next on, the next k b_k on.
struct TileOperands {
  const char* a = nullptr;
  int64_t a_stride = 64, a_next = kTileBytes, a_k = 2 * kTileBytes;
  const char* b = nullptr;
  int64_t b_next = kTileBytes, b_k = 2 * kTileBytes;
};

// Sums are tiles 0 to 3 (row of tiles · 2 + column), a's are 4 and 5, b's 6 and 7.
template <int kM, int kN>
TEGULA_VEC void clear_sums(Tiles& t) {
  t.clear<0>();
  if constexpr (kN > 1) t.clear<1>();
  if constexpr (kM > 1) t.clear<2>();
  if constexpr (kM > 1 && kN > 1) t.clear<3>();
}
template <int kM, int kN>
TEGULA_VEC void load_sums(Tiles& t, const float* p, int64_t stride) {
  t.load<0>(p, 4 * stride);
  if constexpr (kN > 1) t.load<1>(p + kTile, 4 * stride);
  if constexpr (kM > 1) t.load<2>(p + kTile * stride, 4 * stride);
  if constexpr (kM > 1 && kN > 1) t.load<3>(p + kTile * stride + kTile, 4 * stride);
}
template <int kM, int kN>
TEGULA_VEC void store_sums(Tiles& t, float* p, int64_t stride) {
  t.store<0>(p, 4 * stride);
  if constexpr (kN > 1) t.store<1>(p + kTile, 4 * stride);
  if constexpr (kM > 1) t.store<2>(p + kTile * stride, 4 * stride);
  if constexpr (kM > 1 && kN > 1) t.store<3>(p + kTile * stride + kTile, 4 * stride);
}
template <int kT, bool kStream>
TEGULA_VEC void load_a(Tiles& t, const char* p, int64_t stride) {
  if constexpr (kStream) {
    t.load_stream<kT>(p, stride);
  } else {
    t.load<kT>(p, stride);
  }
}
// sums += a·b over n_k tiles of k, ascending.
template <int kM, int kN, bool kStreamA = false>
TEGULA_VEC void add_products(Tiles& t, const TileOperands& x, int64_t n_k) {
  const char *a = x.a, *b = x.b;
  for (int64_t k = 0; k < n_k; ++k, a += x.a_k, b += x.b_k) {
    t.load<6>(b, 64);
    load_a<4, kStreamA>(t, a, x.a_stride);
    t.dot<0, 4, 6>();
    if constexpr (kN > 1) t.load<7>(b + x.b_next, 64);
    if constexpr (kN > 1) t.dot<1, 4, 7>();
    if constexpr (kM > 1) load_a<5, kStreamA>(t, a + x.a_next, x.a_stride);
    if constexpr (kM > 1) t.dot<2, 5, 6>();
    if constexpr (kM > 1 && kN > 1) t.dot<3, 5, 7>();
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
