#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const DotCall d = TEGULA_TRY(parse_dot(call, DType::kBF16, call.out[0].dtype));
  const MatmulVariant v = choose_matmul(d.shape, call.target->multiprocessors);
  const MatmulKernel* k = TEGULA_TRY(
      loaded<MatmulKernel>(v.name(), "matmul_sm90.cu", v.defines(),
                           [&](const std::string& cubin) { return MatmulKernel::load(v, cubin); }));
  const int64_t flops = 2 * d.c.batch.count * d.shape.m * d.shape.n * d.shape.k;
  call.counters->add(flops, flops);
  for (int64_t i = 0; i < d.c.batch.count; ++i) TEGULA_TRY(k->launch(matmul_call(d, i, to)));
  return {};
}
}  // namespace

extern constinit const KernelLaunch matmul_sm90_launch{"matmul_sm90", prepare_by<launch>};

}  // namespace tegula::cuda
