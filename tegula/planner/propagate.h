// Propagation: from where a few values lie to where all of a step's do, to a fixed point.
//
// Axis by axis. A node takes the cut that a known operand or result implies by its dim map, and
// hands it to its other operands and results that are not known yet, forward and backward, until
// nothing changes: first through what is elementwise or a view, then through everything [Xu et al.
// 2021 (GSPMD), section 3.5, whose priorities these are]. What two sides want otherwise stays as it
// was found first and is resharded. Sums stay pending through what is linear. What nothing reaches
// is whole on every rank.
// Each round only makes known what was not, so it ends after at most as many as there are values.
#pragma once

#include <optional>
#include <vector>

#include "tegula/planner/strategy.h"

namespace tegula::planner {

struct ShardedGraph {
  std::vector<Sharding> values;             // as their nodes give them
  std::vector<std::vector<AxisCut>> nodes;  // per node and axis
  int rounds = 0;
};

// Values' given shardings; none: nothing. One axis may be open where another is given.
using Annotations = std::vector<std::vector<std::optional<AxisSharding>>>;  // [value][axis]

// Errors: an annotation that its value's type does not allow.
Result<ShardedGraph> propagate(const Module& module, const Function& f, const Mesh& mesh,
                               const Annotations& annotations);

}  // namespace tegula::planner
