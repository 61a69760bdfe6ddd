// An attention call's operands as the CUDA kernels take them; parsed as for the CPU's.
#pragma once

#include <initializer_list>

#include "tegula/kernels/cpu/common/attention.h"
#include "tegula/kernels/cuda/attention.h"
#include "tegula/kernels/cuda/describe/check.h"
#include "tegula/kernels/device_call.h"

namespace tegula::cuda {

// [b, s, h, d] with stride 1 over d. A dim of extent 1 or 0 may have any stride: it gets a whole
// one.
inline AttentionOperand operand_of(const TensorRef& t) {
  const auto stride = [&](int d) {
    const int64_t step = 16 / size_bytes(t.dtype);
    return t.shape[d] <= 1 ? (t.shape[3] + step - 1) / step * step : t.stride[d];
  };
  return {t.data, stride(0), stride(1), stride(2)};
}

// Whether a kernel that copies 16 bytes at a time can read it. At plan time data is null: aligned.
inline bool is_copyable(const TensorRef& t) {
  const AttentionOperand o = operand_of(t);
  const auto good = [&](int64_t stride) {
    return stride > 0 && stride * size_bytes(t.dtype) % 16 == 0;
  };
  return (t.stride[3] == 1 || t.shape[3] == 1) && good(o.batch) && good(o.row) && good(o.head) &&
         reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// The shape of bf16, f16, f32 or e4m3, with the features that the call has.
AttentionShape shape_of(const kernel::AttentionCall& c);

// The type of o, for q, k and v of a type.
DType result_type(DType t);

// The factors of q (0), k (1) or v (2) in e4m3.
AttentionDescale descale_of(const kernel::AttentionCall& c, int which);

// The parameters that the call's features read.
AttentionFeatureParams given_of(const kernel::AttentionCall& c);

// A forward call, but for what only some kernels read: the counter, and factors of e4m3.
AttentionCall call_of(const kernel::AttentionCall& c, const DeviceCall& call, const Stream& to);

// Whether the kernels can read the call: what the op says, but no part of a larger call.
Status check_whole(const kernel::AttentionCall& c);
inline bool is_f32(const kernel::AttentionCall& c) { return c.q->dtype == DType::kF32; }

// Whether a kernel of f32 tensors, or one of others, can read all of `tensors`.
Status check_readable(const kernel::AttentionCall& c, bool of_f32,
                      std::initializer_list<const TensorRef*> tensors);

// From one head of a log-sum-exp [b, hq, sq] to the next, all alike; 0: they are not. Where sq is
// what a run has, rows lie as far apart as its bound.
int64_t lse_rows(const TensorRef& lse);

// Whether `o` and the log-sum-exp can be written, o in the type that q gives.
Status check_results(const kernel::AttentionCall& c, const TensorRef& o, const TensorRef& lse);

// No more than a mask (causal, or a window) aligned at the bottom right, and heads in groups.
Status check_plain(const kernel::AttentionCall& c);

}  // namespace tegula::cuda
