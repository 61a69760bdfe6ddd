#include "tegula/kernels/cpu/common/pad.h"
#include "tegula/kernels/cuda/plugin/plain.h"
namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const kernel::PadCall p(*call.attrs, call.in[0], call.out[0]);
  for (int64_t i = 0; i < p.n_filled(); ++i) TEGULA_TRY(launch_fill(p.value, p.filled(i), to));
  return launch_move(call.in[0], p.copied, to);
}
}  // namespace

extern constinit const KernelLaunch pad_cuda_launch{"pad_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
