#include "tegula/kernels/order.h"

namespace tegula {

std::string_view resolve_order(std::string_view op, const Target& target,
                               const KernelQuery& query) {
  if (target.device != DeviceKind::kCpu) return {};
  for (const OrderDef& o : cpu_orders())
    if (o.op == op && o.min_isa <= target.isa && (!o.takes || o.takes(query))) return o.name;
  return {};
}

}  // namespace tegula
