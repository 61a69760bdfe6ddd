// Weights of 8 or 4 bits are read once, in long runs, and widened in registers: for few rows of x
// the time is that of reading them.
#include "tegula/kernels/cpu/common/quantised.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  const DType t = q.attrs->get_or<int64_t>("bits", 8) == 4 ? DType::kU8 : DType::kI8;
  if (q.in[1].dtype != t || q.out[0].dtype != DType::kF32) return false;
  for (const TensorRef* r : {&q.in[0], &q.in[1], &q.in[2], &q.out[0]})
    if (r->stride[1] != 1 && r->shape[1] > 1) return false;
  return true;
}
}  // namespace

extern constinit const KernelDef dot_quantised_rows{
    .name = "dot_quantised_rows",
    .op = "dot_quantised",
    .order = "fma_chain",
    .doc = "weights widened in registers, threads over shards of k and columns",
    .priority = 100,
    .supports = supports,
    .workspace_bytes = [](const KernelQuery& q) { return quantised_bytes(*q.attrs, q.in); },
    .launch = [](const KernelCall& call) { isa_table().dot_quantised(call); },
};

}  // namespace tegula::kernel
