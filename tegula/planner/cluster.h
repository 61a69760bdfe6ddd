// Accelerators and clusters by name: the user's own, then those of the table (cost/devices.cpp).
#pragma once

#include <span>
#include <string_view>

#include "tegula/cost/cluster.h"
#include "tegula/planner/real.h"

namespace tegula::planner {

inline constexpr int64_t kMostDevices = int64_t{1} << 20;

// Error: the nearest names; of accelerators that execute otherwise, why they have no layouts.
Result<Accelerator> find_accelerator(std::string_view name, std::span<const Accelerator> own = {});
// "64xH100", or "H100" for one. Errors: no such accelerator, a number that is none or not from 1 to
// 2^20.
Result<ClusterSpec> parse_cluster(std::string_view text, std::span<const Accelerator> own = {});

}  // namespace tegula::planner
