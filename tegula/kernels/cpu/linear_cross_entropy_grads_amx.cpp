#include <algorithm>
#include <initializer_list>

#include "tegula/kernels/cpu/common/cross_entropy.h"
#include "tegula/kernels/cpu/isa/table.h"

namespace tegula::kernel {

namespace {
bool supports(const KernelQuery& q) {
  if (q.in.size() != 5 || q.out.size() != 4) return false;
  const auto c = parse_cross_entropy(q.in.first(3), *q.attrs, false);
  const auto is_all = [](std::initializer_list<DType> types, DType t) {
    return std::ranges::all_of(types, [t](DType u) { return u == t; });
  };
  return c.ok() && is_all({c->x->dtype, q.out[2].dtype, q.out[3].dtype}, DType::kBF16) &&
         is_all({q.in[3].dtype, q.in[4].dtype, q.out[0].dtype, q.out[1].dtype}, DType::kF32);
}
int64_t workspace_bytes(const KernelQuery& q) {
  const auto c = parse_cross_entropy(q.in.first(3), *q.attrs, false);
  return c.ok() ? amx_cross_entropy_grads_bytes(*c) : 0;
}
}  // namespace

extern constinit const KernelDef linear_cross_entropy_grads_amx{
    .name = "linear_cross_entropy_grads_amx",
    .op = "linear_cross_entropy_grads",
    .min_isa = Isa::kAmx,
    .order = "amx_kb64",
    .doc = "bf16 in AMX tiles, up to 256 MiB of logits kept from loss to gradients",
    .priority = 200,
    .supports = supports,
    .workspace_bytes = workspace_bytes,
    .launch = [](const KernelCall& call) { isa_table().cross_entropy_grads_amx(call); },
};

}  // namespace tegula::kernel
