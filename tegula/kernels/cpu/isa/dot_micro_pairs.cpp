// The register tile's loop over pairs of bf16.
#include "tegula/kernels/cpu/isa/dot_micro_tile.h"

namespace tegula::kernel::TEGULA_ISA_NS {

#if defined(TEGULA_ISA_AVX512)
// By rows - 1, vectors - 1, whether a lies in chunks.
struct PairTable {
  MicroFn fn[kTileM][kTileNv][2];
};
template <int kM>
static constexpr void fill_pairs(PairTable& t) {
  t.fn[kM - 1][0][0] = micro_tile<kM, 1, Lies::kFarPanel, false, true>;
  t.fn[kM - 1][0][1] = micro_tile<kM, 1, Lies::kChunks, false, true>;
  t.fn[kM - 1][1][0] = micro_tile<kM, 2, Lies::kFarPanel, false, true>;
  t.fn[kM - 1][1][1] = micro_tile<kM, 2, Lies::kChunks, false, true>;
  if constexpr (kM > 1) fill_pairs<kM - 1>(t);
}
static constexpr PairTable make_pair_table() {
  PairTable t{};
  fill_pairs<kTileM>(t);
  return t;
}
static constexpr PairTable kPairTiles = make_pair_table();

MicroFn pair_micro_fn(int rows, int vectors, Lies a) {
  return kPairTiles.fn[rows - 1][vectors - 1][a == Lies::kChunks];
}
#else
MicroFn pair_micro_fn(int, int, Lies) { return nullptr; }
#endif

}  // namespace tegula::kernel::TEGULA_ISA_NS
