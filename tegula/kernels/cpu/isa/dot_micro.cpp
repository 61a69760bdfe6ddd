#include "tegula/kernels/cpu/isa/dot_micro_tile.h"

namespace tegula::kernel::TEGULA_ISA_NS {

static constexpr MicroTable kMicro = make_micro_table<false>();

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
