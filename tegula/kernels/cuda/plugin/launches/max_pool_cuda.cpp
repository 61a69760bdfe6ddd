#include "tegula/kernels/cuda/plugin/plain.h"
#include "tegula/kernels/cuda/pool_params.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef &x = call.in[0], &y = call.out[0], &place = call.out[1];
  if (y.numel() == 0) return {};
  const TensorRef* const all[] = {&x, &y, &place};
  PoolParams p{};
  p.x = x.data, p.y = y.data, p.places = place.as<int>();
  p.channels = x.shape[1], p.count = y.numel();
  for (int t = 0; t < 3; ++t)
    for (int d = 0; d < 2; ++d) p.plane_stride[t][d] = all[t]->stride[d];
  const auto &kernel = call.attrs->ints("kernel"), &step = call.attrs->ints("stride"),
             &lo = call.attrs->ints("lo"), &dilation = call.attrs->ints("dilation");
  const int absent = kPoolDims - (x.rank - 2);
  for (int i = 0; i < kPoolDims; ++i) {
    p.x_size[i] = p.y_size[i] = p.kernel[i] = p.step[i] = p.dilation[i] = 1;
    if (i < absent) continue;
    const auto s = static_cast<size_t>(i - absent);
    const int d = i - absent + 2;
    p.kernel[i] = kernel[s], p.step[i] = step[s], p.lo[i] = lo[s], p.dilation[i] = dilation[s];
    p.x_size[i] = x.shape[d], p.y_size[i] = y.shape[d];
    for (int t = 0; t < 3; ++t) p.stride[t][i] = all[t]->stride[d];
  }
  const FunctionHandle f =
      TEGULA_TRY(plain_kernel("max_pool.cu", "max_pool", {type_define(x.dtype), "--ftz=true"}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, grid_for(p.count, 256), to, "launching max_pool", p);
}
}  // namespace

extern constinit const KernelLaunch max_pool_cuda_launch{"max_pool_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
