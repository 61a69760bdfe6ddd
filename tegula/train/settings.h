// The settings of a run as TOML, under the names of the flags.
#pragma once

#include <string>

#include "tegula/train/config.h"

namespace tegula {

// The settings that `tegula train --config FILE` needs to train the same model again, a key a line:
// everything that the family and the optimizer read, defaults included; not how the run was started
// (resume, json).
std::string settings_toml(const TrainConfig& c);

}  // namespace tegula
