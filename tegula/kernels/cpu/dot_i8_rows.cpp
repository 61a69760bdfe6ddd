// Integer products of quantised rows and weights; what is packed and what is not: isa/dot_i8.cpp.
#include "tegula/kernels/cpu/common/dot_i8_plan.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

bool supports_i8(const KernelQuery& q) {
  for (const TensorRef* r : {&q.in[0], &q.in[2], &q.in[3], &q.out[0]})
    if (r->stride[1] != 1 && r->shape[1] > 1) return false;
  return true;
}
int64_t i8_bytes(const KernelQuery& q) {
  return I8Workspace(I8Problem(*q.attrs, q.in)).bytes(q.target->n_threads);
}

extern constinit const KernelDef dot_i8_rows{
    .name = "dot_i8_rows",
    .op = "dot_i8",
    .order = "i32_groups",
    .doc = "bytes four at a time (VPDPBUSD where there is), threads over columns",
    .priority = 100,
    .supports = supports_i8,
    .workspace_bytes = i8_bytes,
    .launch = [](const KernelCall& call) { isa_table().dot_i8(call); },
};

}  // namespace tegula::kernel
