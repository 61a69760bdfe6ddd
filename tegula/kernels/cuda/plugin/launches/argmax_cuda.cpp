
#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cuda/plugin/lines.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef &x = call.in[0], &y = call.out[0];
  if (y.numel() == 0) return {};
  LineParams p = lines_along(x.rank - 1, x, {&y});
  p.is_smallest = int{call.attrs->flag("smallest")};
  const FunctionHandle f = TEGULA_TRY(plain_kernel("lines.cu", "argmax", line_defines(x.dtype)));
  const Driver* d = TEGULA_TRY(Driver::get());
  const int threads =
      static_cast<int>(std::clamp<int64_t>(round_up(p.n / 8, int64_t{32}), 32, 1024));
  return d->start(f, {{p.lines.count, 1, 1}, {threads, 1, 1}, 0, true}, to, "launching argmax", p);
}
}  // namespace

extern constinit const KernelLaunch argmax_cuda_launch{"argmax_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
