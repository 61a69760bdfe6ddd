#include "tegula/kernels/cuda/plugin/plain.h"
#include "tegula/kernels/cuda/plugin/reduce.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) { return launch_reduce(call, 0, to); }
}  // namespace

extern constinit const KernelLaunch reduce_sum_cuda_launch{"reduce_sum_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
