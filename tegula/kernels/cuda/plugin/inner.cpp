#include "tegula/kernels/cuda/plugin/inner.h"

namespace tegula {
std::span<const KernelDef* const> cuda_kernels();      // generated from kernels
std::span<const KernelLaunch* const> cuda_launches();  // generated from plugin/launches
}  // namespace tegula

namespace tegula::cuda {

Status launch_inner(const DeviceCall& call, std::string_view op, const Attrs& attrs,
                    std::span<const TensorRef> in, std::span<const TensorRef> out,
                    const Stream& to) {
  const KernelQuery query{.attrs = &attrs, .in = in, .out = out, .target = call.target};
  const KernelDef* best = nullptr;
  for (const KernelDef* k : cuda_kernels()) {
    if (k->op != op || (best != nullptr && k->priority <= best->priority)) continue;
    if (!k->supports(query) || (k->workspace_bytes && k->workspace_bytes(query) > 0)) continue;
    best = k;
  }
  if (best == nullptr) return unsupported(cat("no CUDA kernel of ", op, " serves this part"));
  DeviceCall inner = call;
  inner.attrs = &attrs, inner.in = in, inner.out = out, inner.workspace = nullptr;
  for (const KernelLaunch* l : cuda_launches()) {
    if (l->name != best->name) continue;
    const auto prepared = TEGULA_TRY(l->prepare(inner));
    TEGULA_CHECK(to.list != nullptr, "a part of a call is put onto a list");
    to.list->append(static_cast<const PreparedLaunches&>(*prepared).list);
    return {};
  }
  return internal_error(cat("kernel ", best->name, " has no launch"));
}

}  // namespace tegula::cuda
