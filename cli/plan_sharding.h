// tegula plan --computation-layout, --shard, --search-sharding: a step over the ranks of any mesh,
// priced on an accelerator.
#pragma once

#include <string>

#include "cli/command.h"
#include "tegula/train/config.h"

namespace tegula::cli {

struct ShardingFlags {
  std::string mesh;     // "rows=2,cols=2"
  std::string layout;   // "batch=rows,hidden=cols"
  std::string tensors;  // ".c_fc.weight:1=cols"
  std::string on = "h100";
  bool searches = false;
  bool asked() const { return !layout.empty() || !tensors.empty() || searches; }
};

// After --mesh, without which none of them means anything.
void add_sharding(const Command& cmd, ShardingFlags& flags);
Status plan_sharding(const TrainConfig& config, const ShardingFlags& flags);

}  // namespace tegula::cli
