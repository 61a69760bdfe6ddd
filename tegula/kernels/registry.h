// Looks kernels up in the table: by name, or the best one for a call.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula {

// The kernel of that name, or null.
const KernelDef* find_kernel(std::string_view name);

// The kernel of highest priority that implements `op` on `device`, runs on `isa` and supports the
// query; only of numeric order `order` unless that is empty. Kernels of negative priority are never
// chosen, unless nothing else supports the call. Null when none does.
const KernelDef* best_kernel(std::string_view op, DeviceKind device, Isa isa,
                             const KernelQuery& query, std::string_view order = {});

}  // namespace tegula
