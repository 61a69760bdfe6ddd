#include <cstring>

#include "tegula/kernels/cpu/common/pad.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  const TensorRef& y = call.out[0];
  const auto size = static_cast<size_t>(size_bytes(y.dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(y.numel()) * size);
  if (call.attrs->has("values")) {
    const auto& values = call.attrs->ints("values");
    // The lowest bytes of a number come first.
    for (size_t i = 0; i < values.size(); ++i) std::memcpy(&bytes[i * size], &values[i], size);
  } else {
    const uint64_t bits = kernel::bits_of(call.attrs->f("value"), y.dtype);
    std::memcpy(bytes.data(), &bits, size);
  }
  auto prepared = std::make_unique<PreparedLaunches>();
  TensorRef from = y;
  from.data = TEGULA_TRY(prepared->keep(bytes.data(), static_cast<int64_t>(bytes.size())));
  if (y.rank > 0) from.stride[0] = 1;
  TEGULA_TRY(launch_move(from, y, prepared->list));
  return std::unique_ptr<Prepared>(std::move(prepared));
}
}  // namespace

extern constinit const KernelLaunch constant_cuda_launch{"constant_cuda", prepare};

}  // namespace tegula::cuda
