#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/plugin/inner.h"
#include "tegula/kernels/cuda/plugin/launch.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  if (!are_aligned(call)) return launch_inner(call, "dot", *call.attrs, call.in, call.out, to);
  const DotCall d = TEGULA_TRY(parse_dot(call, call.in[0].dtype));
  const bool b_mn_major = d.shape.b_mn_major, is_f16 = d.shape.is_f16;
  const MatmulMmaKernel* k = TEGULA_TRY(loaded<MatmulMmaKernel>(
      cat(b_mn_major ? "bn" : "bk", is_f16 ? "_f16" : ""), "matmul_mma.cu",
      MatmulMmaKernel::defines(b_mn_major, is_f16),
      [&](const std::string& cubin) { return MatmulMmaKernel::load(b_mn_major, cubin); }));
  const int64_t flops = 2 * d.c.batch.count * d.shape.m * d.shape.n * d.shape.k;
  call.counters->add(flops, flops);
  for (int64_t i = 0; i < d.c.batch.count; ++i) TEGULA_TRY(k->launch(matmul_call(d, i, to)));
  return {};
}
}  // namespace

extern constinit const KernelLaunch matmul_mma_launch{"matmul_mma", prepare_by<launch>};

}  // namespace tegula::cuda
