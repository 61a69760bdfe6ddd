#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef &x = call.in[0], &update = call.in[1], &out = call.out[0];
  if (x.data != out.data) TEGULA_TRY(launch_move(x, out, to));
  if (update.numel() == 0) return {};
  UpdateParams p{};
  p.from = update.data, p.to = out.data;
  // No dims are merged: each has a start.
  p.loops.rank = x.rank, p.loops.count = update.numel();
  bool is_wide = false;
  for (int d = 0; d < x.rank; ++d) {
    const TensorRef& start = call.in[static_cast<size_t>(d) + 2];
    p.loops.extent[d] = update.shape[d];
    p.loops.stride[0][d] = update.stride[d], p.loops.stride[1][d] = out.stride[d];
    p.start[d] = start.data, p.room[d] = x.shape[d] - update.shape[d];
    is_wide = start.dtype == DType::kI64;
  }
  const FunctionHandle f = TEGULA_TRY(
      plain_kernel("move.cu", "update_slice",
                   {cat("TEGULA_BYTES=", size_bytes(x.dtype)), cat("TEGULA_ID64=", int{is_wide})}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, grid_for(p.loops.count, 256), to, "launching update_slice", p);
}
}  // namespace

extern constinit const KernelLaunch update_slice_cuda_launch{"update_slice_cuda",
                                                             prepare_by<launch>};

}  // namespace tegula::cuda
