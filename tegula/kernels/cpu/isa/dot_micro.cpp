#include "tegula/kernels/cpu/isa/dot_micro.h"

namespace tegula::kernel::TEGULA_ISA_NS {

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
        const Vf x = broadcast(a + (kDirect ? i * stride : i));
#pragma GCC unroll 2
        for (int v = 0; v < kNv; ++v) acc[i][v] = fma(x, bv[v], acc[i][v]);
      }
      a += kDirect ? 1 : stride;
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
static constexpr MicroTable kMicro = make_micro_table();

MicroFn micro_fn(int rows, int vectors, bool is_direct) {
  return kMicro.fn[rows - 1][vectors - 1][is_direct];
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
