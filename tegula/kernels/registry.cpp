#include "tegula/kernels/registry.h"

#include <vector>

namespace tegula {

std::span<const KernelDef* const> all_kernels() {
  static const std::vector<const KernelDef*> all = [] {
    std::vector<const KernelDef*> kernels(cpu_kernels().begin(), cpu_kernels().end());
    kernels.insert(kernels.end(), cuda_kernels().begin(), cuda_kernels().end());
    return kernels;
  }();
  return all;
}

const KernelDef* find_kernel(std::string_view name) {
  for (const KernelDef* k : all_kernels())
    if (k->name == name) return k;
  return nullptr;
}

bool supports_all(const KernelDef& kernel, std::span<const KernelQuery> queries) {
  if (kernel.supports == nullptr) return true;
  for (const KernelQuery& q : queries)
    if (!kernel.supports(q)) return false;
  return true;
}

std::string refusals(std::string_view op, DeviceKind device, const KernelQuery& query) {
  std::string text;
  for (const KernelDef* k : all_kernels()) {
    if (k->op != op || k->device != device || k->priority < 0 || k->check == nullptr) continue;
    if (const Status s = k->check(query); !s.ok())
      text += cat(text.empty() ? "" : "; ", k->name, ": ", s.error().message);
  }
  return text;
}

const KernelDef* best_kernel(std::string_view op, const Target& target,
                             std::span<const KernelQuery> queries, std::string_view order) {
  const KernelDef* best = nullptr;
  for (const KernelDef* k : all_kernels()) {
    if (k->device != target.device || k->min_isa > target.isa || k->op != op) continue;
    if (!order.empty() && k->order != order) continue;
    if (best != nullptr && k->priority <= best->priority) continue;
    if (supports_all(*k, queries)) best = k;
  }
  return best;
}

}  // namespace tegula
