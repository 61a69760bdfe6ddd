// Rows of bytes by weights in blocks, exact sums of integers; isa/dot_blocks.cpp.
#include "tegula/kernels/cpu/common/block_dot.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef dot_blocks_i8{
    .name = "dot_blocks_i8",
    .op = "dot_blocks",
    .order = "i32_groups",
    .doc =
        "weights unpacked in registers or in strips (VPDPBUSD where there is), threads over "
        "columns",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          BlockDot c;
          return q.in.size() == 3 && BlockDot::parse(*q.attrs, q.in, q.out[0], c);
        },
    .workspace_bytes =
        [](const KernelQuery& q) {
          BlockDot c;
          BlockDot::parse(*q.attrs, q.in, q.out[0], c);
          return BlockWorkspace(c).bytes(q.target->n_threads);
        },
    .launch = [](const KernelCall& call) { isa_table().dot_blocks(call); },
};

}  // namespace tegula::kernel
