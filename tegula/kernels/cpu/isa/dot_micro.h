// The register tile of dot_packed: kTileM × kTileN chains, a strip of a by a strip of b.
#pragma once

#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Accumulators fill the registers but for kTileNv of b and one of a.
#if defined(TEGULA_ISA_AVX512)
inline constexpr int kTileM = 14, kTileNv = 2;
#elif defined(TEGULA_ISA_AVX2)
inline constexpr int kTileM = 6, kTileNv = 2;
#else
inline constexpr int kTileM = 4, kTileNv = 1;
#endif
inline constexpr int kTileN = kTileNv * kLanes;

struct MicroArgs {
  const float* a = nullptr;  // packed: [k][m] with m rows; direct: rows a_stride apart
  int64_t a_stride = 0;
  const float* b = nullptr;  // [k][kTileN]
  int64_t k = 0;
  const float* start = nullptr;  // [m][kTileN]: the chain so far; null: 0
  const float* merge[3] = {};    // [m][kTileN]: added to the finished chain, in this order
  int n_merge = 0;
  float* dst = nullptr;  // rows dst_stride apart
  int64_t dst_stride = 0;
};

// acc = start or 0; acc = fma(a_k, b_k, acc), k ascending; acc = merge_i + acc; dst = acc.
template <int kM, int kNv, bool kDirect>
static void micro_tile(const MicroArgs& u) {
  Vf acc[kM][kNv];
  const float* start = u.start;
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kNv; ++v)
      acc[i][v] = start ? load(start + i * kTileN + v * kLanes) : zero();
  const float* a = u.a;
  const float* b = u.b;
  const int64_t stride = u.a_stride;
#pragma GCC unroll 2
  for (int64_t k = u.k; k > 0; --k) {
    Vf bv[kNv];
#pragma GCC unroll 2
    for (int v = 0; v < kNv; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) {
      const Vf x = set1(kDirect ? a[i * stride] : a[i]);
#pragma GCC unroll 2
      for (int v = 0; v < kNv; ++v) acc[i][v] = fma(x, bv[v], acc[i][v]);
    }
    a += kDirect ? 1 : kM;
    b += kTileN;
  }
  for (int l = 0; l < u.n_merge; ++l) {
    const float* m = u.merge[l];
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kNv; ++v) acc[i][v] = load(m + i * kTileN + v * kLanes) + acc[i][v];
  }
  float* dst = u.dst;
#pragma GCC unroll 16
  for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < kNv; ++v) store(dst + i * u.dst_stride + v * kLanes, acc[i][v]);
}

using MicroFn = void (*)(const MicroArgs&);

// By rows - 1, vectors - 1, direct.
struct MicroTable {
  MicroFn fn[kTileM][kTileNv][2];
};

template <int kM>
static constexpr void fill_micro(MicroTable& t) {
  t.fn[kM - 1][0][0] = micro_tile<kM, 1, false>;
  t.fn[kM - 1][0][1] = micro_tile<kM, 1, true>;
  if constexpr (kTileNv > 1) {
    t.fn[kM - 1][kTileNv - 1][0] = micro_tile<kM, kTileNv, false>;
    t.fn[kM - 1][kTileNv - 1][1] = micro_tile<kM, kTileNv, true>;
  }
  if constexpr (kM > 1) fill_micro<kM - 1>(t);
}

static constexpr MicroTable make_micro_table() {
  MicroTable t{};
  fill_micro<kTileM>(t);
  return t;
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
