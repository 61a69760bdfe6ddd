#include "tegula/kernels/registry.h"

#include <unordered_map>
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

bool takes_in_programs(const KernelDef& kernel) { return kernel.name == "matvec"; }

namespace {
// A plan asks for each of its steps, and most ops have a kernel or two.
std::span<const KernelDef* const> kernels_of(std::string_view op) {
  static const auto by_op = [] {
    std::unordered_map<std::string_view, std::vector<const KernelDef*>> kernels;
    for (const KernelDef* k : all_kernels()) kernels[k->op].push_back(k);
    return kernels;
  }();
  const auto found = by_op.find(op);
  return found == by_op.end() ? std::span<const KernelDef* const>() : found->second;
}
}  // namespace

const KernelDef* best_kernel(std::string_view op, const Target& target,
                             std::span<const KernelQuery> queries, std::string_view order) {
  const KernelDef* best = nullptr;
  for (const KernelDef* k : kernels_of(op)) {
    if (k->device != target.device || k->min_isa > target.isa) continue;
    if (!order.empty() && k->order != order) continue;
    if (best != nullptr && k->priority <= best->priority) continue;
    if (supports_all(*k, queries)) best = k;
  }
  return best;
}

}  // namespace tegula
