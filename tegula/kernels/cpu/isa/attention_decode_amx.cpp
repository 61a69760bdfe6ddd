// Decoding of bf16 whose scores are formed in AMX's tiles: 16 keys, where they lie, are a tile of
// a, the queries of as many heads as fit one of b, so that no key is transposed. [order "amx_kb64"
// of common/attention_decode.h]
#include "tegula/kernels/cpu/isa/amx.h"
#include "tegula/kernels/cpu/isa/attention_decode.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
// Queries lie [heads that share a tile][d / 32][16 pairs][16 columns][2]. A product with one head's
// keys has sums for all columns; those of its own queries are used.
class TileScores {
 public:
  struct Work {
    Tiles tiles;
    alignas(64) float sums[kTile + 1][kTile];  // [key][query]; four columns may go past the last
    alignas(64) bf16 last[kTile][kMaxDecodeWidth];
  };

  static constexpr int64_t kAheadBytes = 128 << 10;  // many values in turn: sums move less often

  explicit TileScores(const AttentionCall& c)
      : d_(c.d), group_(static_cast<int>(c.group)), heads_of_tile_(kTile / group_) {}
  int64_t q_floats(int64_t heads) const { return ceil_div(heads, heads_of_tile_) * tile_floats(); }
  int64_t columns() const { return kTile; }

  // Packs the queries of key heads, whose first query head is `head`.
  void pack(const AttentionCall& c, int64_t batch, int64_t head, int64_t heads, float* q) const {
    std::fill_n(q, q_floats(heads), 0.0f);
    const bf16* from = c.q->as<const bf16>() + offset4(*c.q, batch, 0, head);
    for (int64_t i = 0; i < heads * group_; ++i) {
      const int64_t of_tile = heads_of_tile_ * group_;
      auto* to = reinterpret_cast<bf16*>(q + i / of_tile * tile_floats()) + i % of_tile * 2;
      for (int64_t e = 0; e < d_; ++e)
        to[e / 2 * kTile * 2 + e % 2] = from[i * c.q->stride[2] + e * c.q->stride[3]];
    }
  }

  // Attends to keys [lo, hi) of all heads, the first of which has `keys`. Queries stay in tiles.
  void of_keys(Work& w, const ThinRows<bf16>& keys, const Ahead& ahead, const float* q,
               int64_t heads, int64_t lo, int64_t hi, float* s) const {
    for (int64_t h0 = 0; h0 < heads; h0 += heads_of_tile_, q += tile_floats()) {
      const int64_t n = std::min<int64_t>(heads - h0, heads_of_tile_);
      hold<0>(w.tiles, q), hold<1>(w.tiles, q), hold<2>(w.tiles, q), hold<3>(w.tiles, q);
      for (int64_t j = lo; j < hi; j += kTile)
        for (int64_t h = 0; h < n; ++h) {
          const bf16* at = keys.at + (h0 + h) * d_ + j * keys.stride;
          of_tile(w, {at, keys.stride, keys.n - j}, ahead, q);
          transpose(&w.sums[0][h * group_], s + (h0 + h) * group_ * kKeyBlock + j);
        }
    }
  }

 private:
  // Tile 0 has sums, 1 and 2 keys, 3 queries that are not held, 4 to 7 the first 128 elements of
  // those that are.
  static constexpr int kHeld = 4;
  int64_t tile_floats() const { return d_ / kTilePairs * (kTileBytes / 4); }

  // Half of what a tile of keys reads.
  static void fetch(const Ahead& ahead) {
    for (int l = 0; l < kTile / 2; ++l) ahead.of_key(0, 0);
  }

  template <int kStep>
  void hold(Tiles& tiles, const float* q) const {
    if (kStep * kTilePairs < d_) tiles.load<kHeld + kStep>(q + kStep * (kTileBytes / 4), 64);
  }
  template <int kStep>
  TEGULA_TILE void add(Tiles& tiles, const bf16* at, int64_t row_bytes, const Ahead& ahead) const {
    if (kStep * kTilePairs >= d_) return;
    tiles.load<1 + kStep % 2>(at + kStep * kTilePairs, row_bytes);
    fetch(ahead);
    tiles.dot<0, 1 + kStep % 2, kHeld + kStep>();
    fetch(ahead);
  }
  TEGULA_TILE void of_tile(Work& w, const ThinRows<bf16>& keys, const Ahead& ahead,
                           const float* q) const {
    const bf16* at = keys.at;
    int64_t row_bytes = keys.stride * 2;
    if (keys.n < kTile) {  // rows past the last are any
      for (int64_t i = 0; i < keys.n; ++i) std::copy_n(at + i * keys.stride, d_, w.last[i]);
      at = w.last[0], row_bytes = sizeof w.last[0];
    }
    w.tiles.clear<0>();
    add<0>(w.tiles, at, row_bytes, ahead), add<1>(w.tiles, at, row_bytes, ahead);
    add<2>(w.tiles, at, row_bytes, ahead), add<3>(w.tiles, at, row_bytes, ahead);
    for (int64_t e = 4 * kTilePairs; e < d_; e += kTilePairs) {
      w.tiles.load<1>(at + e, row_bytes);
      fetch(ahead);
      w.tiles.load<3>(q + e / kTilePairs * (kTileBytes / 4), 64);
      w.tiles.dot<0, 1, 3>();
      fetch(ahead);
    }
    w.tiles.store<0>(w.sums, sizeof w.sums[0]);
  }
  // A head's columns of sums, from the first one on.
  TEGULA_TILE void transpose(const float* sums, float* s) const {
    for (int key = 0; key < kTile; key += kLanes)
      for (int i = 0; i < group_; i += 4) {
        Vf r[4];
        load_columns4(sums + key * kTile + i, kTile, r);
#pragma GCC unroll unrolled(4)
        for (int l = 0; l < 4; ++l)
          if (i + l < group_) store(s + (i + l) * kKeyBlock + key, r[l]);
      }
  }

  const int64_t d_;
  const int group_, heads_of_tile_;
};
}  // namespace

void attention_decode_amx(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, false, kTakesPages);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  Decode<bf16, TileScores>(call, *c).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
