#include "tegula/kernels/registry.h"

namespace tegula {

const KernelDef* find_kernel(std::string_view name) {
  for (const KernelDef* k : all_kernels())
    if (k->name == name) return k;
  return nullptr;
}

const KernelDef* best_kernel(std::string_view op, DeviceKind device, Isa isa,
                             const KernelQuery& query, std::string_view order) {
  const KernelDef* best = nullptr;
  for (const KernelDef* k : all_kernels()) {
    if (k->op != op || k->device != device || k->min_isa > isa) continue;
    if (!order.empty() && k->order != order) continue;
    if (best != nullptr && k->priority <= best->priority) continue;
    if (k->supports == nullptr || k->supports(query)) best = k;
  }
  return best;
}

}  // namespace tegula
