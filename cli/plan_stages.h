// tegula plan --stages: what each stage of a cut step costs, and what its schedule waits and keeps.
#pragma once

#include <string>

#include "tegula/kernels/target.h"
#include "tegula/train/config.h"

namespace tegula::cli {

struct Stages {
  int64_t n = 1;
  std::string schedule = "one_f_one_b";
};

// Cuts at layers, so that the stage with most FLOPs has least. Prints a table, or one JSON object
// with c.json.
Status plan_stages(const TrainConfig& c, const Target& target, const Stages& stages);

}  // namespace tegula::cli
