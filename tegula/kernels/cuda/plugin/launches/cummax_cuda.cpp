#include "tegula/kernels/cuda/plugin/scans.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  TensorRef x = call.in[0], y = call.out[0], place = call.out[1];
  if (x.numel() == 0) return {};
  const auto dim = static_cast<int>(call.attrs->i("dim"));
  const bool is_reverse = call.attrs->flag("reverse");
  if (is_reverse)
    for (TensorRef* t : {&x, &y, &place}) *t = reversed(*t, dim);
  LineParams p = lines_along(dim, x, {&y, &place});
  p.is_smallest = int{call.attrs->flag("smallest")}, p.is_reverse = int{is_reverse};
  return launch_scan("cummax", false, x.dtype, p, to);
}
}  // namespace

extern constinit const KernelLaunch cummax_cuda_launch{"cummax_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
