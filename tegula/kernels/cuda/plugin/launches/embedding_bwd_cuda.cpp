#include "tegula/kernels/cuda/plugin/indexed.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  TEGULA_TRY(launch_fill(0, call.out[0], to));
  return launch_scatter(call, call.out[0], call.in[1], call.in[0], Meet::kAdd, to);
}
}  // namespace

extern constinit const KernelLaunch embedding_bwd_cuda_launch{"embedding_bwd_cuda",
                                                              prepare_by<launch>};

}  // namespace tegula::cuda
