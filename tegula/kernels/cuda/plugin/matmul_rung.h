// Launches of the rungs of f32, by their names in matmul_rungs().
#pragma once

#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

Status launch_rung(const DeviceCall& call, const Stream& to, std::string_view name);

}  // namespace tegula::cuda
