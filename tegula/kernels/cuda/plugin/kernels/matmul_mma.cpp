// Products on the tensor cores of sm_80 and newer: mma.sync and cp.async.
#include "tegula/kernels/cuda/plugin/dot_call.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(80));
  const DotCall d = TEGULA_TRY(parse_dot(q, DType::kBF16));
  if (d.shape.a_mn_major) return unsupported("dot: the first factor must have stride 1 over k");
  return check_matmul(matmul_call(d, 0, nullptr));
}

Status launch(const DeviceCall& call) {
  const DotCall d = TEGULA_TRY(parse_dot(call, DType::kBF16));
  const bool b_mn_major = d.shape.b_mn_major;
  const MatmulMmaKernel* k = TEGULA_TRY(loaded<MatmulMmaKernel>(
      b_mn_major ? "bn" : "bk", "matmul_mma.cu", MatmulMmaKernel::defines(b_mn_major),
      [&](const std::string& cubin) { return MatmulMmaKernel::load(b_mn_major, cubin); }));
  for (int64_t i = 0; i < d.c.batch.count; ++i)
    TEGULA_TRY(k->launch(matmul_call(d, i, call.queue->stream)));
  return {};
}
}  // namespace

extern constinit const KernelDef matmul_mma{
    .name = "matmul_mma",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "sm80_mma",
    .doc = "mma.sync and cp.async, f32 sums",
    .priority = 50,
    .supports = passes<check>,
    .check = check,
    .launch = launch_into_queue<launch>,
};

}  // namespace tegula::cuda
