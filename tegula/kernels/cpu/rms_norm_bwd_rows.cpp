#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef rms_norm_bwd_rows{
    .name = "rms_norm_bwd_rows",
    .op = "rms_norm_bwd",
    .order = "lane16",
    .doc = "dx, and dw by shards of rows, in one pass; threads over shards",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) { return rows_supported(q) && q.in[2].dtype == DType::kF32; },
    .workspace_bytes = norm_bwd_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().rms_norm_bwd(call); },
};

}  // namespace tegula::kernel
