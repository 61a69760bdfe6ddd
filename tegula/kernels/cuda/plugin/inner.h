// A call within a call: kernels that are made of others.
#pragma once

#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

// The launches of the op's best kernel without a workspace, onto the same list. Error: none serves
// it.
Status launch_inner(const DeviceCall& call, std::string_view op, const Attrs& attrs,
                    std::span<const TensorRef> in, std::span<const TensorRef> out,
                    const Stream& to);

// Whether the operands of a product begin at whole pieces of 16 bytes. A plan does not know: a view
// may begin anywhere. If not, another kernel takes the call: launch_inner, which asks with the
// data.
inline bool are_aligned(const DeviceCall& call) {
  for (const TensorRef& t : {call.in[0], call.in[1], call.out[0]})
    if (reinterpret_cast<uintptr_t>(t.data) % 16 != 0) return false;
  return true;
}

}  // namespace tegula::cuda
