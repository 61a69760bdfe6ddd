// tegula plan --occupancy KERNEL: how many threads of a kernel a GPU has at work, what limits them,
// and whether they keep its memory busy.
#pragma once

#include <string>

#include "cli/command.h"
#include "tegula/kernels/target.h"

namespace tegula::cli {

struct OccupancyFlags {
  std::string kernel;       // a part of a variant's name, or threads=…,registers=…,smem=…
  int64_t grid_blocks = 0;  // 0: not asked
  double latency_ns = 600;  // of a load from the GPU's memory
};

// --occupancy and what goes with it; returns --occupancy.
Flag add_occupancy(const Command& cmd, OccupancyFlags& flags);

// A table, or of one kernel an explanation; with `as_json` one JSON object.
Status print_occupancy(const Target& gpu, const OccupancyFlags& flags, bool as_json);

}  // namespace tegula::cli
