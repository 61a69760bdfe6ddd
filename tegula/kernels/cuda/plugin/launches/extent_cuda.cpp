#include "tegula/kernels/cpu/common/pad.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
// A call is made ready anew for other extents, so the number is known here.
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef& y = call.out[0];
  const auto extent = static_cast<double>(call.attrs->dims("size")[0].bound());
  return launch_fill(kernel::bits_of(extent, y.dtype), y, to);
}
}  // namespace

extern constinit const KernelLaunch extent_cuda_launch{"extent_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
