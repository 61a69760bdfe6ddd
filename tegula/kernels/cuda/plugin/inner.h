// A call within a call: kernels that are made of others.
#pragma once

#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

// The launches of the op's best kernel without a workspace, onto the same list. Error: none serves
// it.
Status launch_inner(const DeviceCall& call, std::string_view op, const Attrs& attrs,
                    std::span<const TensorRef> in, std::span<const TensorRef> out,
                    const Stream& to);

}  // namespace tegula::cuda
