// Integer products of many rows in AMX's tiles: the bits of dot_i8_rows.
#include "tegula/kernels/cpu/common/dot_i8_plan.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef dot_i8_amx{
    .name = "dot_i8_amx",
    .op = "dot_i8",
    .min_isa = Isa::kAmx,
    .order = "i32_groups",
    .doc = "AMX tiles of bytes, weights packed into quads",
    .priority = 200,
    .supports =
        [](const KernelQuery& q) { return supports_i8(q) && !I8Problem(*q.attrs, q.in).is_thin(); },
    .workspace_bytes = i8_bytes,
    .launch = [](const KernelCall& call) { isa_table().dot_i8_amx(call); },
};

}  // namespace tegula::kernel
