// An accelerator of the user's: a preset with some numbers of its own, as a file of TOML has it.
//
//   [my-card]
//   like = "h100"             # the preset that the rest is from
//   bf16-tflops = 400         # also f64-, f32-, tf32-, fp8-, int8-
//   memory-gb = 96            # 10⁹ bytes
//   between-gb-per-s = 50     # one way; also memory-, inside-
//   devices-per-node = 4
//   dollars-per-hour = 2.5
// Upper and lower case of keys are alike, as are hyphens and underscores (base/amounts.h).
// Errors: an unknown key or preset (with the nearest names), a number that is not positive, a key
// that stands twice.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tegula/cost/accelerator.h"

namespace tegula::planner {

struct DeviceSheet {
  std::string name, like;
  std::vector<std::pair<std::string, double>> numbers;
};

Result<Accelerator> make_accelerator(const DeviceSheet& sheet);

}  // namespace tegula::planner
