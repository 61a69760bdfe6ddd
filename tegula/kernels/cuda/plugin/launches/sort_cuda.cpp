#include "tegula/kernels/cuda/plugin/sort.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef& x = call.in[0];
  if (x.numel() == 0) return {};
  call.counters->claim(SortSizes(x).workspace_bytes());
  return launch_sort(x, {call.out[0], call.out[1]}, call.workspace, call.attrs->flag("descending"),
                     to);
}
}  // namespace

extern constinit const KernelLaunch sort_cuda_launch{"sort_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
