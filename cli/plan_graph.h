// `tegula plan --graph`: the text of what is planned (ir/text.h).
#pragma once

#include <string_view>

#include "tegula/kernels/target.h"
#include "tegula/train/config.h"

namespace tegula::cli {

// "step": a training step as models write it; on a mesh, after the passes that see it whole, with
// the sharding of every value. "rank": what one rank, the mesh's first, runs after all passes, with
// its collectives.
Status print_graph(const TrainConfig& config, const Target& target, std::string_view which);

}  // namespace tegula::cli
