// A rung of the matmul ladder, for reading: the loops and their counts are in
// isa/dot_cache_tiled.cpp, all rungs side by side in docs/kernels/matmul_cpu.md.
#include "tegula/kernels/cpu/common/ladder.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef dot_cache_tiled{
    .name = "dot_cache_tiled",
    .op = "dot",
    .order = "fma_chain",
    .doc = "tiles of b1 x b1 outputs, whose rows of a stay in cache: memory reads n^2 + n^3/b1",
    .priority = -30,
    .supports = ladder_supports,
    .launch = [](const KernelCall& call) { isa_table().dot_cache_tiled(call); },
};

}  // namespace tegula::kernel
