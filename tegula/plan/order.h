// The order in which nodes run: the builder's, but with every node that frees at least as many
// bytes as it allocates pulled forward to the moment it can run (list scheduling on net bytes). So
// a weight is updated, and its gradient dropped, as soon as the gradient is known. Bits never
// depend on it. What reads the result of work in the background stays where the builder put it.
#pragma once

#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

std::vector<NodeId> schedule_nodes(const Function& f);

// The value whose buffer each value lies in, following views (a parameter's or a node's own
// result).
std::vector<ValueId> view_roots(const Function& f);

}  // namespace tegula
