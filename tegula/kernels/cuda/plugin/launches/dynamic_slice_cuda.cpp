#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef &x = call.in[0], &out = call.out[0];
  if (out.numel() == 0) return {};
  UpdateParams p{};
  p.from = x.data, p.to = out.data;
  // No dims are merged: each has a start.
  p.loops.rank = x.rank, p.loops.count = out.numel();
  for (int d = 0; d < x.rank; ++d) {
    p.loops.extent[d] = out.shape[d];
    p.loops.stride[0][d] = x.stride[d], p.loops.stride[1][d] = out.stride[d];
    p.start[d] = call.in[static_cast<size_t>(d) + 1].data;
    p.room[d] = x.shape[d] - out.shape[d];
  }
  const bool is_wide = x.rank > 0 && call.in[1].dtype == DType::kI64;
  const FunctionHandle f = TEGULA_TRY(
      plain_kernel("move.cu", "slice_at",
                   {cat("TEGULA_BYTES=", size_bytes(x.dtype)), cat("TEGULA_ID64=", int{is_wide})}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, grid_for(p.loops.count, 256), to, "launching dynamic_slice", p);
}
}  // namespace

extern constinit const KernelLaunch dynamic_slice_cuda_launch{"dynamic_slice_cuda",
                                                              prepare_by<launch>};

}  // namespace tegula::cuda
