#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef log_softmax_rows{
    .name = "log_softmax_rows",
    .op = "log_softmax",
    .order = "lane16",
    .doc = "three passes over a row in L1; threads over rows",
    .priority = 100,
    .supports = rows_supported,
    .workspace_bytes = rows_workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().log_softmax(call); },
};

}  // namespace tegula::kernel
