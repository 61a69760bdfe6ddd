// A table for people of what collectives take on a cluster: from which message on the ring beats
// the tree, and what a hierarchy over nodes saves.
#pragma once

#include <string>

#include "tegula/cost/collective.h"

namespace tegula::planner {

void explain_collectives(std::string& out, const ClusterSpec& cluster);

}  // namespace tegula::planner
