// Rows of x to bytes with a scale for 32 values; isa/quantise_blocks.cpp.
#include "tegula/kernels/cpu/common/rows.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

extern constinit const KernelDef quantise_blocks_rows{
    .name = "quantise_blocks_rows",
    .op = "quantise_blocks",
    .order = "exact",
    .doc = "a block in registers, threads over rows",
    .priority = 100,
    .supports =
        [](const KernelQuery& q) {
          const TensorRef &x = q.in[0], &y = q.out[0], &d = q.out[1];
          const auto whole = [](const TensorRef& t) {
            return t.stride[t.rank - 1] == 1 || t.shape[t.rank - 1] == 1;
          };
          return x.dtype == DType::kF32 && whole(x) && whole(y) && whole(d);
        },
    .launch = [](const KernelCall& call) { isa_table().quantise_blocks(call); },
};

}  // namespace tegula::kernel
