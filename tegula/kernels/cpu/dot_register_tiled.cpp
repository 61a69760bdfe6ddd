// A rung of the matmul ladder, for reading: the loops and their counts are in
// isa/dot_register_tiled.cpp, all rungs side by side in docs/kernels/matmul_cpu.md.
#include "tegula/kernels/cpu/common/ladder.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef dot_register_tiled{
    .name = "dot_register_tiled",
    .op = "dot",
    .order = "fma_chain",
    .doc = "tiles of v1 x v2 sums in registers: L1 reads n^3/v1 + n^3/v2",
    .priority = -20,
    .supports = ladder_supports,
    .launch = [](const KernelCall& call) { isa_table().dot_register_tiled(call); },
};

}  // namespace tegula::kernel
