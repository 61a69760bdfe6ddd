// Products on Hopper's tensor cores: tensor copies and wgmma, warp groups that load and compute.
#include "tegula/kernels/cuda/plugin/dot_call.h"

namespace tegula::cuda {

namespace {
Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(90, 90));
  const DotCall d = TEGULA_TRY(parse_dot(q, DType::kBF16));
  return check_matmul(matmul_call(d, 0, nullptr));
}

Status launch(const DeviceCall& call) {
  const DotCall d = TEGULA_TRY(parse_dot(call, DType::kBF16));
  const MatmulVariant v = choose_matmul(d.shape, TEGULA_TRY(hopper_multiprocessors()));
  const MatmulKernel* k = TEGULA_TRY(
      loaded<MatmulKernel>(v.name(), "matmul_sm90.cu", v.defines(),
                           [&](const std::string& cubin) { return MatmulKernel::load(v, cubin); }));
  for (int64_t i = 0; i < d.c.batch.count; ++i)
    TEGULA_TRY(k->launch(matmul_call(d, i, call.queue->stream)));
  return {};
}
}  // namespace

extern constinit const KernelDef matmul_sm90{
    .name = "matmul_sm90",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "sm90_wgmma",
    .doc = "wgmma and tensor copies, f32 sums",
    .priority = 100,
    .supports = passes<check>,
    .check = check,
    .launch = launch_into_queue<launch>,
};

}  // namespace tegula::cuda
