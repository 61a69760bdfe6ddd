// micro_tile, the loop behind dot_micro.h.
#pragma once

#include "tegula/kernels/cpu/isa/dot_micro.h"
#include "tegula/kernels/cpu/isa/pairs.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// As numbers: of an operand without elements, which may be null, no row lies in an array.
TEGULA_VEC const float* on(const float* a, int64_t n) {
  return reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(a) +
                                        static_cast<uintptr_t>(n) * sizeof(float));
}
constexpr int kAhead = 8;  // steps of k that packing fetches ahead
TEGULA_VEC void fetch_strip(const char* at) {
#pragma GCC unroll unrolled(8)
  for (int i = 0; i < kFetchedRows * kTileN * 4; i += 64) __builtin_prefetch(at + i, 0, 2);
}
// kM floats, as two halves that overlap. (A masked load may read any memory, says the compiler, and
// puts sums there.)
template <int kM>
TEGULA_VEC void copy_row(float* to, const float* from) {
  typedef float Half __attribute__((vector_size(32), aligned(4), may_alias));
  static_assert(kM >= 8 && kM <= 16);
  *reinterpret_cast<Half*>(to) = *reinterpret_cast<const Half*>(from);
  *reinterpret_cast<Half*>(to + kM - 8) = *reinterpret_cast<const Half*>(from + kM - 8);
}
// Whole chunks of rows, a row at a time.
template <int kM>
struct ChunkCopy {
  const float* src;
  float* to;
  int64_t stride, left;  // steps
  const float* from = nullptr;
  int rows = 0;  // of the chunk at hand

  __attribute__((always_inline)) void row() {
    if (rows == 0) return;
    __builtin_prefetch(from + 8 * kChunk, 0, 2);
    store(to, load(from));
    from = on(from, stride), to += kChunk, --rows;
  }
  __attribute__((always_inline)) void next() {
    while (rows > 0) row();
    if (left < kChunk) return;
    from = src, rows = kM;
    src += kChunk, left -= kChunk;
  }
};
TEGULA_VEC void copy_rows(StripCopy& c) {
  const int64_t ahead = 2 * c.rows, n = c.rows < c.left ? c.rows : c.left;
  const float* from = c.from;
  float* to = c.to;
  for (int64_t i = n; i > 0; --i, from = on(from, c.stride), to += kTileN)
#pragma GCC unroll unrolled(2)
    for (int v = 0; v < kTileNv; ++v) {
      __builtin_prefetch(on(from, ahead * c.stride + v * kLanes));
      __builtin_prefetch(to + ahead * kTileN + v * kLanes, 1);
      store(to + v * kLanes, load(from + v * kLanes));
    }
  c.from = from, c.to = to, c.left -= n;
}
template <int kRows, int kCols>
TEGULA_VEC void fetch_rows(const float* at, int64_t stride) {
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kCols; j += 16) __builtin_prefetch(at + i * stride + j, 1);
}

// For each tile and piece: acc = start or 0; acc = fma(a_k, b_k, acc), k ascending; acc = merge_i +
// acc. Few stores may wait for their sums before the core takes in nothing else: those of a piece
// stand between the multiply-adds of the next one's first step. kPairs: steps are two of k
// (pairs.h).
template <int kM, int kNv, Lies kLie, bool kPacks = false, bool kPairs = false>
// NOLINTNEXTLINE(readability-function-size): one loop, whose parts share its registers
static void micro_tile(const MicroArgs& u) {
  constexpr bool kIsPanel = kLie == Lies::kPanel || kLie == Lies::kFarPanel;
  constexpr bool kIsFar = kLie == Lies::kRows || kLie == Lies::kFarPanel;
  constexpr bool kIsChunks = kLie == Lies::kChunks, kByChunks = goes_by_chunks(kLie);
  constexpr bool kCopies = kPacks && kIsChunks, kReads = kPacks && !kIsChunks;
  constexpr bool kIsOne = kLie == Lies::kPanel || kLie == Lies::kBlockRows;  // tile and piece
  // Rows by threes from one register: at 0, 1 and 2 strides, which an address holds.
  constexpr bool kByThrees = kLie == Lies::kRows;
  const int64_t stride = kLie == Lies::kBlockRows ? kBlockRow : u.a_stride;
  const char* next_b = u.next_b;
  [[maybe_unused]] const char* far_a = u.far_a;
  Vf acc[kM][kNv] = {};
  float* due = nullptr;  // where the next row of acc is to be stored
  int64_t due_stride = 0;
  const auto each = [](auto f) __attribute__((always_inline)) {
#pragma GCC unroll unrolled(16)
    for (int i = 0; i < kM; ++i)
#pragma GCC unroll unrolled(2)
      for (int v = 0; v < kNv; ++v) f(i, v);
  };
  const auto store_due = [&](int i, int v) __attribute__((always_inline)) {
    store(due + v * kLanes, acc[i][v]);
    if (v + 1 < kNv) return;
    due += due_stride;
    asm("" : "+r"(due));  // else an address for each row
  };
  int64_t tile = 0;
  do {
    if constexpr (kByChunks) far_a = u.far_a + tile * u.far_a_tile;
    const float *a = u.a + tile * u.a_tile, *next_a = on(u.next_a, tile * u.a_tile), *b = u.b;
    float* panel_a = const_cast<float*>(a);  // to be written
    ChunkCopy<kM> copy{u.src_a + tile * u.src_a_tile, panel_a, u.src_a_stride, u.src_k};
    if constexpr (kCopies) copy.next(), copy.next(), copy.next();
    if constexpr (kReads) a = copy.src;
    const float* again = again_at(a);
    const auto slot = [&](int at) { return u.slot[at] + tile * u.slot_tile[at]; };
    const float *a3 = on(a, 3 * u.a_stride), *a6 = on(a, 6 * u.a_stride);
    const float *a9 = on(a, 9 * u.a_stride), *a12 = on(a, 12 * u.a_stride);
    const auto row = [&](int i) __attribute__((always_inline)) {
      return i < 3 ? a : i < 6 ? a3 : i < 9 ? a6 : i < 12 ? a9 : a12;
    };
    const auto step = [&](auto before) __attribute__((always_inline)) {
      if constexpr (kIsPanel) __builtin_prefetch(next_a), next_a += kM;
      if constexpr (kIsFar && !kByChunks) __builtin_prefetch(next_b, 0, 2), next_b += u.next_b_step;
      if constexpr (kCopies) copy.row();
      if constexpr (kReads) {
        copy_row<kM>(panel_a, a), panel_a += kM;
        __builtin_prefetch(on(a, kAhead * u.src_a_stride));
      }
      if constexpr (kByThrees && kFetchesRows)
        __builtin_prefetch(far_a, 0, 2), far_a += u.far_a_step;
      Vf bv[kNv];
#pragma GCC unroll unrolled(2)
      for (int v = 0; v < kNv; ++v) bv[v] = load(b + v * kLanes);
#pragma GCC unroll unrolled(16)
      for (int i = 0; i < kM; ++i) {
        const Vf x = broadcast(kByThrees   ? row(i) + i % 3 * stride
                               : kIsChunks ? a + i * kChunk
                                           : a + (kIsPanel ? i : i * stride));
        const bool twice = kByChunks && !kPairs && i % 7 < 4;
#pragma GCC unroll unrolled(2)
        for (int v = 0; v < kNv; ++v) {
          before(i, v);
          const Vf y = v > 0 && twice ? broadcast(again + i * (kIsChunks ? kChunk : 1)) : x;
          acc[i][v] = kPairs ? dot_pairs(acc[i][v], y, bv[v]) : fma(y, bv[v], acc[i][v]);
        }
      }
      const int64_t to_next = kReads ? u.src_a_stride : kIsPanel ? stride : 1;
      a += to_next;
      if constexpr (kByChunks) again += to_next;
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
    };
    int64_t left = kChunk - u.a_phase;  // steps of the chunk
    const auto took = [&](int64_t n) __attribute__((always_inline)) {
      if ((left -= n) > 0) return;
      left = kChunk;
      if constexpr (kIsChunks) {
        a += (kM - 1) * kChunk, again += (kM - 1) * kChunk;
        if constexpr (kCopies) copy.next();
      }
      if (u.next_strip != nullptr) {
        copy_rows(*u.next_strip);
      } else {
        fetch_strip(next_b), next_b += u.next_b_step;
      }
      __builtin_prefetch(far_a, 0, 2);
      far_a += u.far_a_step;
    };
    const Piece *p = u.pieces, *end = p + u.n_pieces;
    do {
      float* const dst = p->dst < 0 ? u.dst + tile * u.dst_tile : slot(p->dst);
      int64_t k = p->k;
      if (due != nullptr && p->start < 0 && k > 0) {
        step([&](int i, int v)
                 __attribute__((always_inline)) { store_due(i, v), acc[i][v] = zero(); });
        --k;
        if constexpr (kByChunks) took(1);
      } else {
        if (due != nullptr) each(store_due);
        if (p->start < 0) {
          each([&](int i, int v) __attribute__((always_inline)) { acc[i][v] = zero(); });
        } else {
          const float* start = slot(p->start);
          each([&](int i, int v) __attribute__((always_inline)) {
            acc[i][v] = load(start + i * kTileN + v * kLanes);
          });
        }
      }
      if (p->dst < 0 && u.fetches_dst) fetch_rows<kM, kNv * kLanes>(dst, u.dst_stride);
      if constexpr (kByChunks) {
        while (k > 0) {
          const int64_t n = k < left ? k : left;
#pragma GCC unroll unrolled(4)
          for (int64_t i = n; i > 0; --i) step([](int, int) {});
          k -= n, took(n);
        }
      } else {
#pragma GCC unroll unrolled(4)
        for (; k > 0; --k) step([](int, int) {});
      }
      for (int l = 0; l < p->n_merge; ++l) {
        const float* m = slot(p->merge[l]);
        each([&](int i, int v) __attribute__((always_inline)) {
          acc[i][v] = load(m + i * kTileN + v * kLanes) + acc[i][v];
        });
      }
      due = dst, due_stride = p->dst < 0 ? u.dst_stride : kTileN;
    } while (!kIsOne && ++p < end);
  } while (!kIsOne && ++tile < u.n_tiles);
  each(store_due);
}

// By rows - 1, vectors - 1, how a lies.
struct MicroTable {
  MicroFn fn[kTileM][kTileNv][kLies];
};

template <int kM, int kNv, bool kPairs>
static constexpr void fill_lies(MicroFn (&fn)[kLies]) {
  const auto at = [&](Lies a) -> MicroFn& { return fn[static_cast<int>(a)]; };
  at(Lies::kFarPanel) = micro_tile<kM, kNv, Lies::kFarPanel, false, kPairs>;
  if constexpr (kCopiesRows) at(Lies::kChunks) = micro_tile<kM, kNv, Lies::kChunks, false, kPairs>;
  if constexpr (!kPairs) {
    at(Lies::kPanel) = micro_tile<kM, kNv, Lies::kPanel>;
    at(Lies::kRows) = micro_tile<kM, kNv, Lies::kRows>;
    at(Lies::kBlockRows) = micro_tile<kM, kNv, Lies::kBlockRows>;
  }
}
template <int kM, bool kPairs>
static constexpr void fill_micro(MicroTable& t) {
  fill_lies<kM, 1, kPairs>(t.fn[kM - 1][0]);
  if constexpr (kTileNv > 1) fill_lies<kM, kTileNv, kPairs>(t.fn[kM - 1][kTileNv - 1]);
  if constexpr (kM > 1) fill_micro<kM - 1, kPairs>(t);
}
template <bool kPairs>
static constexpr MicroTable make_micro_table() {
  MicroTable t{};
  fill_micro<kTileM, kPairs>(t);
  return t;
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
