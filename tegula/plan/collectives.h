// The collectives that ranks execute together, in the order in which their plans run it: that must
// be one order on all ranks, or they wait for one another for ever.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/base/memory.h"
#include "tegula/plan/plan.h"

namespace tegula {

// A line for each collective, in the background one for its start and one for its end: op, axis,
// ranks of the group, dtype and bytes of what each gives.
std::vector<std::string> collectives_in_order(const Plan& plan);
// The hash of these lines, the same in every process.
uint64_t collectives_hash(const Plan& plan);

// Error: the first rank whose collectives differ from rank 0's, and the first of them that does,
// with both lines.
Status compare_collectives(const Mesh& mesh, std::span<const std::shared_ptr<const Plan>> plans);

}  // namespace tegula
