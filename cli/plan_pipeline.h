// tegula plan --mesh pp=…: what each rank of a pipeline does, holds and sends.
#pragma once

#include "tegula/kernels/target.h"
#include "tegula/train/config.h"

namespace tegula::cli {

// Prints it, or one JSON object with config.json.
Status plan_pipeline(const TrainConfig& config, const Target& target);

}  // namespace tegula::cli
