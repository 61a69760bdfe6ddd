#include "tegula/kernels/cpu/isa/dot_micro.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// For each piece: acc = start or 0; acc = fma(a_k, b_k, acc), k ascending; acc = merge_i + acc.
template <int kM, int kNv, Lies kLie>
static void micro_tile(const MicroArgs& u) {
  const float* a = u.a;
  const float* b = u.b;
  const float* next_a = u.next_a;
  const char* next_b = u.next_b;
  [[maybe_unused]] const char* far_a = u.far_a;
  constexpr bool kIsPanel = kLie == Lies::kPanel || kLie == Lies::kFarPanel;
  constexpr bool kIsFar = kLie == Lies::kRows || kLie == Lies::kFarPanel;
  // Rows by threes from one register: at 0, 1 and 2 strides, which an address holds.
  constexpr bool kByThrees = kLie == Lies::kRows;
  // As numbers: of an operand without elements, which may be null, no row lies in an array.
  const auto rows_on = [&](int64_t n) {
    return reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(a) +
                                          static_cast<uintptr_t>(n * u.a_stride) * sizeof(float));
  };
  const float *a3 = rows_on(3), *a6 = rows_on(6), *a9 = rows_on(9), *a12 = rows_on(12);
  const auto row = [&](int i) __attribute__((always_inline)) {
    return i < 3 ? a : i < 6 ? a3 : i < 9 ? a6 : i < 12 ? a9 : a12;
  };
  const int64_t stride = kLie == Lies::kBlockRows ? kBlockRow : u.a_stride;
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
#pragma GCC unroll 4
    for (int64_t k = p->k; k > 0; --k) {
      if constexpr (kIsPanel) __builtin_prefetch(next_a), next_a += kM;
      if constexpr (kIsFar) __builtin_prefetch(next_b, 0, 2), next_b += u.next_b_step;
      if constexpr (kByThrees && kFetchesRows)
        __builtin_prefetch(far_a, 0, 2), far_a += u.far_a_step;
      Vf bv[kNv];
#pragma GCC unroll 2
      for (int v = 0; v < kNv; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kM; ++i) {
        const Vf x =
            broadcast(kByThrees ? row(i) + i % 3 * stride : a + (kIsPanel ? i : i * stride));
#pragma GCC unroll 2
        for (int v = 0; v < kNv; ++v) acc[i][v] = fma(x, bv[v], acc[i][v]);
      }
      a += kIsPanel ? stride : 1;
      if constexpr (kByThrees) {
        // Barriers: else an offset for each row.
        ++a3;
        asm("" : "+r"(a3));
        if constexpr (kM > 6) {
          ++a6, ++a9, ++a12;
          asm("" : "+r"(a6), "+r"(a9), "+r"(a12));
        }
      }
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

// By rows - 1, vectors - 1, how a lies.
struct MicroTable {
  MicroFn fn[kTileM][kTileNv][kLies];
};

template <int kM, int kNv>
static constexpr void fill_lies(MicroFn (&fn)[kLies]) {
  fn[static_cast<int>(Lies::kPanel)] = micro_tile<kM, kNv, Lies::kPanel>;
  fn[static_cast<int>(Lies::kRows)] = micro_tile<kM, kNv, Lies::kRows>;
  fn[static_cast<int>(Lies::kBlockRows)] = micro_tile<kM, kNv, Lies::kBlockRows>;
  fn[static_cast<int>(Lies::kFarPanel)] = micro_tile<kM, kNv, Lies::kFarPanel>;
}
template <int kM>
static constexpr void fill_micro(MicroTable& t) {
  fill_lies<kM, 1>(t.fn[kM - 1][0]);
  if constexpr (kTileNv > 1) fill_lies<kM, kTileNv>(t.fn[kM - 1][kTileNv - 1]);
  if constexpr (kM > 1) fill_micro<kM - 1>(t);
}

static constexpr MicroTable make_micro_table() {
  MicroTable t{};
  fill_micro<kTileM>(t);
  return t;
}
static constexpr MicroTable kMicro = make_micro_table();

MicroFn micro_fn(int rows, int vectors, Lies a) {
  return kMicro.fn[rows - 1][vectors - 1][static_cast<int>(a)];
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
