// Looks kernels up in the table: by name, or the best one for a call.
#pragma once

#include "tegula/kernels/kernel.h"

namespace tegula {

// The kernel of that name, or null.
const KernelDef* find_kernel(std::string_view name);

// The generated tables: the CPU's kernels, and the descriptors of CUDA's.
std::span<const KernelDef* const> cpu_kernels();
std::span<const KernelDef* const> cuda_kernels();

// Why the kernels that `device` has of `op` do not serve the call, a line of "name: reason; ..."
std::string refusals(std::string_view op, DeviceKind device, const KernelQuery& query);

// Does the kernel support the call at all the extents that are asked about?
bool supports_all(const KernelDef& kernel, std::span<const KernelQuery> queries);

// Whether a launch of the kernel may begin with a fused step's that makes what it reads, or end
// with one that reads what it makes (Prepared::begin_with, end_with, kernels/device.h).
bool takes_in_programs(const KernelDef& kernel);

// The kernel of highest priority that implements `op` for `target` and supports all the queries;
// only of numeric order `order` unless that is empty. Kernels of negative priority are never
// chosen, unless nothing else supports the call. Null when none does.
const KernelDef* best_kernel(std::string_view op, const Target& target,
                             std::span<const KernelQuery> queries, std::string_view order = {});

}  // namespace tegula
