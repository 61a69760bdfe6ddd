#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef layer_norm_rows{
    .name = "layer_norm_rows",
    .op = "layer_norm",
    .order = "lane16",
    .doc = "two passes over a row in L1: mean, then variance; threads over rows",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          return rows_supported(q) && q.out[1].dtype == DType::kF32 &&
                 q.out[2].dtype == DType::kF32;
        },
    .workspace_bytes = rows_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().layer_norm(call); },
};

}  // namespace tegula::kernel
