// copy: any strides, any dtype; rows are shared out over threads.
#include "tegula/kernels/cpu/common/strided.h"
#include "tegula/kernels/kernel.h"

namespace tegula::kernel {

extern constinit const KernelDef copy_strided = {
    .name = "copy_strided",
    .op = "copy",
    .order = "exact",
    .doc = "rows by memcpy where both sides are dense",
    .supports = [](const KernelQuery&) { return true; },
    .launch = [](const KernelCall& c) { move_strided(c.in[0], c.out[0], *c.pool); },
};

}  // namespace tegula::kernel
