#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef rms_norm_rows{
    .name = "rms_norm_rows",
    .op = "rms_norm",
    .order = "lane16",
    .doc = "one pass for the squares, one for the result; threads over rows",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) { return rows_supported(q) && q.out[1].dtype == DType::kF32; },
    .workspace_bytes = rows_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().rms_norm(call); },
};

}  // namespace tegula::kernel
