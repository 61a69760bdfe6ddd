// `tegula plan --mesh`: what each rank of a mesh does, holds and sends in a training step.
#pragma once

#include "tegula/train/ranks.h"

namespace tegula::cli {

Status plan_ranks(const TrainConfig& config, const Target& target);

}  // namespace tegula::cli
