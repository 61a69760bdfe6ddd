// Decoding of bf16 whose scores are formed in AMX's tiles: 16 keys, where they lie, are a tile of
// a, a head's queries one of b, so that no key is transposed. [order "amx_kb64" of
// common/attention_decode.h]
#include "tegula/kernels/cpu/isa/amx.h"
#include "tegula/kernels/cpu/isa/attention_decode.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel::TEGULA_ISA_NS {

namespace {
class TileScores {
 public:
  struct Work {
    Tiles tiles;
    alignas(64) float sums[kTile][kTile];  // [key][query]
    alignas(64) bf16 last[kTile][kMaxDecodeWidth];
  };
  static constexpr int kHeadsAtOnce = 1;

  explicit TileScores(const AttentionCall& c) : d_(c.d), group_(static_cast<int>(c.group)) {}
  int64_t q_floats() const { return d_ / kTilePairs * (kTileBytes / 4); }
  int64_t columns() const { return kTile; }

  void pack(const AttentionCall& c, int64_t batch, int64_t head, float* q) const {
    std::fill_n(q, q_floats(), 0.0f);
    const bf16* from = c.q->as<const bf16>() + offset4(*c.q, batch, 0, head);
    auto* to = reinterpret_cast<bf16*>(q);
    for (int64_t e = 0; e < d_; ++e)
      for (int i = 0; i < group_; ++i)
        to[(e / 2 * kTile + i) * 2 + e % 2] = from[i * c.q->stride[2] + e * c.q->stride[3]];
  }

  void of_keys(Work& w, const ThinRows<bf16>& keys, const Ahead<bf16>& ahead, const float* q,
               int64_t j, float* s, const NextHead&, int64_t) const {
    const bf16* at = keys.at + j * keys.stride;
    int64_t row_bytes = keys.stride * 2;
    if (keys.n - j < kTile) {  // rows past the last are any
      for (int64_t i = 0; i < keys.n - j; ++i) std::copy_n(at + i * keys.stride, d_, w.last[i]);
      at = w.last[0], row_bytes = sizeof w.last[0];
    }
    w.tiles.clear<0>();
    for (int64_t e = 0; e < d_; e += kTilePairs) {
      w.tiles.load<1>(at + e, row_bytes);
      w.tiles.load<2>(q + e / kTilePairs * (kTileBytes / 4), 64);
      w.tiles.dot<0, 1, 2>();
      ahead.of_keys<kTile>(j, e);  // after the product: the tiles' lines go first
    }
    w.tiles.store<0>(w.sums, sizeof w.sums[0]);
    for (int key = 0; key < kTile; key += kLanes)
      for (int i = 0; i < group_; i += kSquare) {
        Vf r[kSquare];
        load_transposed(&w.sums[key][i], kTile, r);
        for (int l = 0; l < std::min(kSquare, group_ - i); ++l)
          store(s + (i + l) * kKeyBlock + j + key, r[l]);
      }
  }

 private:
  const int64_t d_;
  const int group_;
};
}  // namespace

void attention_decode_amx(const KernelCall& call) {
  const auto c = parse_attention(*call.attrs, call.in, false);
  TEGULA_CHECK(c.ok(), c.ok() ? "" : c.error().message);
  Decode<bf16, TileScores>(call, *c).run();
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
