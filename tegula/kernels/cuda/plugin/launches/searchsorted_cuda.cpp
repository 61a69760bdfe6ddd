#include "tegula/kernels/cuda/plugin/lines.h"
#include "tegula/kernels/cuda/sort_params.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef &s = call.in[0], &x = call.in[1], &y = call.out[0];
  if (y.numel() == 0) return {};
  const int last = x.rank - 1;
  SearchParams p{};
  p.sorted = s.data, p.x = x.data, p.y = y.as<int>();
  const LineParams rows = lines_along(last, s, {&x, &y});
  p.rows = rows.lines, p.n = rows.n, p.m = x.shape[last];
  for (int t = 0; t < 3; ++t) p.step[t] = rows.step[t];
  p.is_right = int{call.attrs->flag("right")};
  const FunctionHandle f =
      TEGULA_TRY(plain_kernel("sort.cu", "searchsorted", {type_define(x.dtype), "--ftz=true"}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, grid_for(y.numel(), 256), to, "launching searchsorted", p);
}
}  // namespace

extern constinit const KernelLaunch searchsorted_cuda_launch{"searchsorted_cuda",
                                                             prepare_by<launch>};

}  // namespace tegula::cuda
