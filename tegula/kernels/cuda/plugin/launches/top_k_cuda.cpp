#include "tegula/kernels/cuda/plugin/lines.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef &x = call.in[0], &values = call.out[0], &indices = call.out[1];
  if (values.numel() == 0) return {};
  LineParams p = lines_along(x.rank - 1, x, {&values, &indices});
  p.k = static_cast<int>(values.shape[x.rank - 1]);
  const FunctionHandle f = TEGULA_TRY(plain_kernel("lines.cu", "top_k", line_defines(x.dtype)));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, {{(p.lines.count + 3) / 4, 1, 1}, {128, 1, 1}, 0, true}, to, "launching top_k",
                  p);
}
}  // namespace

extern constinit const KernelLaunch top_k_cuda_launch{"top_k_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
