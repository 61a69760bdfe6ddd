#include "tegula/kernels/cuda/plugin/scans.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  TensorRef x = call.in[0], y = call.out[0];
  if (x.numel() == 0) return {};
  const auto dim = static_cast<int>(call.attrs->i("dim"));
  if (call.attrs->flag("reverse"))
    for (TensorRef* t : {&x, &y}) *t = reversed(*t, dim);
  const LineParams p = lines_along(dim, x, {&y});
  const FunctionHandle f = TEGULA_TRY(plain_kernel("lines.cu", "cumsum", line_defines(x.dtype)));
  const Driver* d = TEGULA_TRY(Driver::get());
  call.counters->add(x.numel(), x.numel());
  return d->start(f, {{(p.lines.count + 127) / 128, 1, 1}, {128, 1, 1}, 0, true}, to,
                  "launching cumsum", p);
}
}  // namespace

extern constinit const KernelLaunch cumsum_cuda_launch{"cumsum_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
