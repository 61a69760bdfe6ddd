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

// What happens to the chains of one piece of k. Slots are tiles [m][kTileN] of partial sums.
struct Piece {
  int64_t k = 0;
  int start = -1;  // the slot that holds the chain so far; -1: it starts from 0
  int n_merge = 0;
  int merge[3] = {};  // slots added to the finished chain, in this order
  int dst = -1;       // the slot it goes to; -1: it is final
};
inline constexpr int kMaxSlots = 4;  // three levels of a tree of 8, one chain cut in pieces

struct MicroArgs {
  const float* a = nullptr;  // packed: [k][m] with m rows; direct: rows a_stride apart
  int64_t a_stride = 0;
  const float* b = nullptr;       // [k][kTileN]
  const float* next_a = nullptr;  // as much of the next tile's a, fetched meanwhile
  const Piece* pieces = nullptr;
  int n_pieces = 0;
  float* slot[kMaxSlots] = {};
  float* dst = nullptr;  // of the final piece; rows dst_stride apart
  int64_t dst_stride = 0;
};

// For each piece: acc = start or 0; acc = fma(a_k, b_k, acc), k ascending; acc = merge_i + acc.
template <int kM, int kNv, bool kDirect>
static void micro_tile(const MicroArgs& u) {
  const float* a = u.a;
  const float* b = u.b;
  const float* next_a = u.next_a;
  const int64_t stride = u.a_stride;
  for (const Piece *p = u.pieces, *end = p + u.n_pieces; p < end; ++p) {
    Vf acc[kM][kNv];
    if (p->start < 0) {
#pragma GCC unroll 16
      for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < kNv; ++v) acc[i][v] = zero();
    } else {
      const float* start = u.slot[p->start];
#pragma GCC unroll 16
      for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < kNv; ++v) acc[i][v] = load(start + i * kTileN + v * kLanes);
    }
#pragma GCC unroll 2
    for (int64_t k = p->k; k > 0; --k) {
      if constexpr (!kDirect) __builtin_prefetch(next_a), next_a += kM;
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
    for (int l = 0; l < p->n_merge; ++l) {
      const float* m = u.slot[p->merge[l]];
#pragma GCC unroll 16
      for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
        for (int v = 0; v < kNv; ++v) acc[i][v] = load(m + i * kTileN + v * kLanes) + acc[i][v];
    }
    float* dst = p->dst < 0 ? u.dst : u.slot[p->dst];
    const int64_t dst_stride = p->dst < 0 ? u.dst_stride : kTileN;
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < kNv; ++v) store(dst + i * dst_stride + v * kLanes, acc[i][v]);
  }
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
