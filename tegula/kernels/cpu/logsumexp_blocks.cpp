#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef logsumexp_blocks{
    .name = "logsumexp_blocks",
    .op = "logsumexp",
    .order = "kb64",
    .doc = "one pass over a row, in blocks of 64; threads over rows",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return rows_supported(q) && q.out[0].dtype == DType::kF32 && q.attrs->flag("by_blocks");
        },
    .workspace_bytes = rows_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().logsumexp(call); },
};

}  // namespace tegula::kernel
