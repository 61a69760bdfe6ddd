// Starts the processes of `tegula train --processes`.
#pragma once

#include <string>

#include "tegula/comm/launch.h"
#include "tegula/train/config.h"

namespace tegula::cli {

// They meet in this.
Segment::Size size_of_processes(const TrainConfig& config);

// Runs this command line in each of config.processes; the exit code.
Result<int> start_processes(const TrainConfig& config, const std::string& config_file);

}  // namespace tegula::cli
