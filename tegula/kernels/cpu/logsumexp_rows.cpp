#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef logsumexp_rows{
    .name = "logsumexp_rows",
    .op = "logsumexp",
    .order = "lane16",
    .doc = "two passes over a row in L1; threads over rows",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return rows_supported(q) && q.out[0].dtype == DType::kF32 && !q.attrs->flag("by_blocks");
        },
    .workspace_bytes = rows_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().logsumexp(call); },
};

}  // namespace tegula::kernel
