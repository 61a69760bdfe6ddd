// eliminate: choices of least cost in a graph that is long but narrow, as a model's step is, which
// goes from layer to layer and back.
//
// Nodes are taken out one after another. What a node costs at best, whatever its neighbours choose,
// becomes a table over all of their choices together, and what it then chooses another. The work is
// the sum over nodes of the product of its own and its neighbours' choices, which the order
// decides: always the node whose product is least, or the one that makes fewest new neighbours,
// whichever order takes less in all. [Bertelè and Brioschi 1972; Dechter 1999, bucket elimination]
#pragma once

#include <optional>
#include <vector>

#include "tegula/planner/choices.h"

namespace tegula::planner {

// Bytes are not looked at. Nothing: more than `most_work` sums, or more than 256 choices of a node;
// nothing was computed.
std::optional<std::vector<int>> eliminate(const ChoiceProblem& problem, double most_work);

}  // namespace tegula::planner
