#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef softmax_bwd_rows{
    .name = "softmax_bwd_rows",
    .op = "softmax_bwd",
    .order = "lane16",
    .doc = "two passes over a row in L1; threads over rows",
    .priority = 100,
    .supports = rows_supported,
    .workspace_bytes = rows_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().softmax_bwd(call); },
};

}  // namespace tegula::kernel
