#include "tegula/kernels/cuda/plugin/cross_entropy.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  return launch_cross_entropy(call, CrossEntropyPart::kGrads, to);
}
}  // namespace

extern constinit const KernelLaunch linear_cross_entropy_grads_cuda_launch{
    "linear_cross_entropy_grads_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
