// tegula plan --stages: what each stage of a cut step costs, and what its schedule waits and keeps.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "tegula/kernels/target.h"
#include "tegula/train/config.h"

namespace tegula::cli {

struct Stages {
  int64_t n = 1;
  int64_t ranks = 0;   // 0: as many as the schedule has by default
  int64_t slices = 1;  // of a micro-batch's tokens
  double latency_us = 0, link_gb_per_s = 0;
  bool blocking_sends = false;
  double together = 1;          // share of their times' sum that parts that go together take
  std::vector<double> part_ms;  // F, B, W: of all stages, or of each; empty: by the roofline
  std::string gantt;            // a file
};

// --stages and what goes with it; returns --stages.
Flag add_stages(const Command& cmd, Stages& stages);

// Cuts at layers, so that the slowest stage is fastest. Prints a table, or one JSON object with
// c.json, and writes the picture that was asked for.
Status plan_stages(const TrainConfig& c, const Target& target, const Stages& stages);

}  // namespace tegula::cli
