#include "tegula/kernels/cuda/plugin/indexed.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  return launch_gather(call, call.in[0], call.in[1], call.out[0], to);
}
}  // namespace

extern constinit const KernelLaunch gather_cuda_launch{"gather_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
