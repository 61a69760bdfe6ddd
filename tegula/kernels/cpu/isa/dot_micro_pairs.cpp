// The register tile's loop over pairs of bf16.
#include "tegula/kernels/cpu/isa/dot_micro_tile.h"

namespace tegula::kernel::TEGULA_ISA_NS {

#if defined(TEGULA_ISA_AVX512)
static constexpr MicroTable kPairTiles = make_micro_table<true>();

MicroFn pair_micro_fn(int rows, int vectors, Lies a) {
  return kPairTiles.fn[rows - 1][vectors - 1][static_cast<int>(a)];
}
#else
MicroFn pair_micro_fn(int, int, Lies) { return nullptr; }
#endif

}  // namespace tegula::kernel::TEGULA_ISA_NS
