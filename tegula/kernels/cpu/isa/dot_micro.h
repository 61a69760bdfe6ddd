// The register tile of dot_packed: kTileM × kTileN chains, a strip of a by a strip of b.
#pragma once

#include "tegula/kernels/cpu/common/k_blocks.h"
#include "tegula/kernels/cpu/isa/vec.h"

namespace tegula::kernel::TEGULA_ISA_NS {

// Accumulators fill the registers but for kTileNv of b and one of a.
#if defined(TEGULA_ISA_AVX512)
inline constexpr int kTileM = 14, kTileNv = 2;
#elif defined(TEGULA_ISA_AVX2) || defined(TEGULA_ISA_COUNTED)
inline constexpr int kTileM = 6, kTileNv = 2;
#else
inline constexpr int kTileM = 4, kTileNv = 1;
#endif
inline constexpr int kTileN = kTileNv * kLanes;
inline constexpr bool kFetchesRows = kTileM == 14;  // where L2 holds two blocks of a

// A second way to `a`, of which a compiler does not know that it is one: a product that broadcasts
// is one micro-operation and a load; a broadcast for two of them is another, and one load less.
// With eight of 14 rows of the first kind both limits of a core are met.
TEGULA_VEC const float* again_at(const float* a) {
  asm("" : "+r"(a));
  return a;
}

// How a lies. Rows a fixed way apart need no registers for their addresses; kRows has too few for
// 14 of them and takes 15 % longer than a panel (AVX-512, k = 64).
enum class Lies {  // kPanel and kBlockRows: of one tile and one piece only
  kPanel,          // rows side by side, k a_stride apart
  kRows,           // k side by side, rows a_stride apart
  kBlockRows,      // the same, rows kBlockRow floats apart
  kFarPanel,       // as kPanel, but b's next strip is far, too, and fetched meanwhile
  kChunks,         // copied: [k / kChunk][rows][kChunk]; fetches as kRows
};
inline constexpr int kLies = 5;
inline constexpr int64_t kBlockRow = 64;
// One address and constants beside it reach all rows of a chunk, a line each; rows as they lie may
// be a power of two apart, and then 14 lines of them meet in one set of 12 ways.
inline constexpr int kChunk = 16;
inline constexpr bool kCopiesRows = kTileM == 14;
inline constexpr int kFetchedRows = 3;  // of b, beside a chunk
constexpr bool goes_by_chunks(Lies a) {
  return kCopiesRows && (a == Lies::kChunks || a == Lies::kFarPanel);
}

// Rows of a strip of b, which go from where they lie to the strip's panel: so many at a time.
struct StripCopy {
  const float* from = nullptr;
  int64_t stride = 0;
  float* to = nullptr;
  int64_t rows = 0, left = 0;
};

// Slots are tiles [m][kTileN].
struct MicroArgs {
  const float* a = nullptr;
  int64_t a_stride = 0;
  const float* b = nullptr;       // [k][kTileN]
  const float* next_a = nullptr;  // of a panel: the next tile's, fetched meanwhile
  // kRows and kFarPanel: of b's next strip the part to be fetched into L2, so many bytes per k. By
  // chunks, here and below: per chunk, of b kFetchedRows.
  const char* next_b = nullptr;
  int64_t next_b_step = 0;
  StripCopy* next_strip = nullptr;  // if not null: packed instead, some rows after each chunk
  // kFetchesRows: of the rows that follow the task's, likewise; by chunks: of another row each
  // tile.
  const char* far_a = nullptr;
  int64_t far_a_step = 0, far_a_tile = 0;
  const Piece* pieces = nullptr;
  int n_pieces = 0;
  float* slot[kMaxSlots] = {};
  float* dst = nullptr;  // of the final piece; rows dst_stride apart
  int64_t dst_stride = 0;
  bool fetches_dst = false;
  // Tiles one above the other, all of them against b: floats to the next one's rows, slots, dst.
  int64_t n_tiles = 1;
  int64_t a_tile = 0, slot_tile[kMaxSlots] = {}, dst_tile = 0;
  int a_phase = 0;  // kChunks: where in a chunk `a` lies
  // Beside its products a tile packs rows of a that are read for the first time (packing_micro_fn).
  // kChunks: the whole chunks in `src_k` steps of rows so far apart, two chunks ahead of their use.
  // kFarPanel: rows of k so far apart.
  const float* src_a = nullptr;
  int64_t src_a_stride = 0, src_a_tile = 0, src_k = 0;
};

// For each piece: acc = start or 0; acc = fma(a_k, b_k, acc), k ascending; acc = merge_i + acc.
using MicroFn = void (*)(const MicroArgs&);
// The tile of so many rows and vectors of columns.
MicroFn micro_fn(int rows, int vectors, Lies a);
// Over pairs (pairs.h), where kHasPairs: kFarPanel or kChunks; k counts pairs.
MicroFn pair_micro_fn(int rows, int vectors, Lies a);
// A whole tile that packs a: kCopiesRows, and kChunks or kFarPanel.
MicroFn packing_micro_fn(Lies a);

// One product of a strip of a by a strip of b, k ascending: dst = sums from 0.
struct TileArgs {
  const float* a;
  int64_t a_stride;
  Lies lies;
  const float* b;
  int64_t k;
  int rows, cols;
  bool is_of_pairs = false;  // then a lies as kPanel
};
TEGULA_VEC MicroArgs tile_args(const TileArgs& t, const Piece& piece) {
  MicroArgs u;
  u.a = t.a, u.a_stride = t.a_stride, u.next_a = t.a, u.b = t.b;
  u.next_b = reinterpret_cast<const char*>(t.b);
  u.far_a = reinterpret_cast<const char*>(t.a);
  u.pieces = &piece, u.n_pieces = 1;
  return u;
}
TEGULA_VEC MicroFn tile_fn(const TileArgs& t) {
  const int vectors = (t.cols + kLanes - 1) / kLanes;
  return t.is_of_pairs ? pair_micro_fn(t.rows, vectors, Lies::kFarPanel)
                       : micro_fn(t.rows, vectors, t.lies);
}
static inline void multiply_tile(const TileArgs& t, float* dst, int64_t dst_stride) {
  const Piece piece{.k = t.k};
  MicroArgs u = tile_args(t, piece);
  u.dst = dst, u.dst_stride = dst_stride;
  tile_fn(t)(u);
}
// The chains of tile acc [rows][kTileN] go on.
static inline void accumulate_tile(const TileArgs& t, float* acc) {
  const Piece piece{.k = t.k, .start = 0, .dst = 0};
  MicroArgs u = tile_args(t, piece);
  u.slot[0] = acc;
  tile_fn(t)(u);
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
