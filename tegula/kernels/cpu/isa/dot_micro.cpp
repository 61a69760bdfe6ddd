#include "tegula/kernels/cpu/isa/dot_micro_tile.h"

namespace tegula::kernel::TEGULA_ISA_NS {

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
  if constexpr (kCopiesRows)
    fn[static_cast<int>(Lies::kChunks)] = micro_tile<kM, kNv, Lies::kChunks>;
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

MicroFn packing_micro_fn(Lies a) {
  if constexpr (kCopiesRows)
    return a == Lies::kChunks ? micro_tile<kTileM, kTileNv, Lies::kChunks, true>
                              : micro_tile<kTileM, kTileNv, Lies::kFarPanel, true>;
  return nullptr;
}

MicroFn micro_fn(int rows, int vectors, Lies a) {
  return kMicro.fn[rows - 1][vectors - 1][static_cast<int>(a)];
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
