#include "tegula/kernels/cpu/common/dot_i8_plan.h"
#include "tegula/kernels/cuda/dot_i8_params.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const kernel::I8Problem sizes(*call.attrs, call.in);
  const int64_t flops = sizes.m * sizes.n * (2 * sizes.k + 2 * sizes.groups + 1);
  call.counters->add(flops, flops);
  if (sizes.m == 0 || sizes.n == 0) return {};
  const TensorRef &x = call.in[0], &q = call.in[2], &scale = call.in[3], &y = call.out[0];
  DotI8Params p{};
  p.x = x.as<signed char>(), p.q = q.as<signed char>(), p.sx = call.in[1].as<float>();
  p.scale = scale.as<float>(), p.y = y.as<float>();
  p.m = sizes.m, p.n = sizes.n, p.group = sizes.e, p.groups = sizes.groups;
  for (int d = 0; d < 2; ++d) {
    p.x_stride[d] = x.stride[d], p.q_stride[d] = q.stride[d];
    p.scale_stride[d] = scale.stride[d], p.y_stride[d] = y.stride[d];
  }
  p.sx_stride = call.in[1].stride[0];
  constexpr int64_t kColumns = 64;
  const int64_t rows = sizes.m <= 16 ? 16 : 64;
  const FunctionHandle f = TEGULA_TRY(plain_kernel(
      "dot_i8.cu", "dot_i8",
      {cat("TEGULA_ROWS=", rows), cat("TEGULA_BITS=", sizes.is_four ? 4 : 8), "--ftz=true"}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f,
                  {{ceil_div(sizes.n, kColumns), ceil_div(sizes.m, rows), 1}, {256, 1, 1}, 0, true},
                  to, "launching dot_i8", p);
}
}  // namespace

extern constinit const KernelLaunch dot_i8_cuda_launch{"dot_i8_cuda", prepare_by<launch>};

}  // namespace tegula::cuda
