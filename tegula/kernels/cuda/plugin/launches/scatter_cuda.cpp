#include <cmath>

#include "tegula/kernels/cpu/common/pad.h"
#include "tegula/kernels/cuda/plugin/indexed.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
Meet meet_of(const std::string& mode) {
  return mode == "set"   ? Meet::kSet
         : mode == "mul" ? Meet::kMul
         : mode == "max" ? Meet::kMax
         : mode == "min" ? Meet::kMin
                         : Meet::kAdd;
}

// The value that a place holds that no id asks for.
double start_of(Meet meet, DType t) {
  if (meet == Meet::kMul) return 1;
  if (meet != Meet::kMax && meet != Meet::kMin) return 0;
  if (is_float(t)) return meet == Meet::kMax ? -HUGE_VAL : HUGE_VAL;
  return 0;
}

uint64_t start_bits(Meet meet, DType t) {
  const bool is_max = meet == Meet::kMax;
  if ((is_max || meet == Meet::kMin) && t == DType::kI32)
    return static_cast<uint32_t>(is_max ? INT32_MIN : INT32_MAX);
  if ((is_max || meet == Meet::kMin) && t == DType::kI64)
    return static_cast<uint64_t>(is_max ? INT64_MIN : INT64_MAX);
  return kernel::bits_of(start_of(meet, t), t);
}

Status launch(const DeviceCall& call, const Stream& to) {
  const TensorRef &y = call.in[0], &ids = call.in[1], &x = call.out[0];
  const Meet meet = meet_of(call.attrs->str("mode"));
  if (call.in.size() > 2) {
    if (call.in[2].data != x.data) TEGULA_TRY(launch_move(call.in[2], x, to));
  } else {
    TEGULA_TRY(launch_fill(start_bits(meet, x.dtype), x, to));
  }
  if (meet == Meet::kSet) return launch_put(call, x, ids, y, to);
  return launch_scatter(call, x, ids, y, meet, to);
}

// A scatter that only puts down is one launch, which may be joined with others.
Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  const TensorRef &y = call.in[0], &ids = call.in[1], &x = call.out[0];
  if (call.in.size() > 2 && call.in[2].data == x.data && y.numel() > 0 &&
      meet_of(call.attrs->str("mode")) == Meet::kSet)
    return prepare_put(call, x, ids, y);
  return prepare_by<launch>(call);
}
}  // namespace

extern constinit const KernelLaunch scatter_cuda_launch{"scatter_cuda", prepare};

}  // namespace tegula::cuda
