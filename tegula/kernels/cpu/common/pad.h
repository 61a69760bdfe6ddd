// A `pad` call as parts of its result: those that are filled, and where x goes.
#pragma once

#include <cstring>

#include "tegula/base/half.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

// The pad value in the tensor's dtype.
inline uint64_t bits_of(double v, DType t) {
  uint64_t bits = 0;
  auto put = [&](auto x) { std::memcpy(&bits, &x, sizeof x); };
  switch (t) {
    case DType::kF64:
      put(v);
      break;
    case DType::kF32:
      put(static_cast<float>(v));
      break;
    case DType::kBF16:
      put(bf16(static_cast<float>(v)));
      break;
    case DType::kF16:
      put(f16(static_cast<float>(v)));
      break;
    case DType::kF8E4M3:
      put(f8e4m3(static_cast<float>(v)));
      break;
    case DType::kI64:
      put(static_cast<int64_t>(v));
      break;
    case DType::kI32:
      put(static_cast<int32_t>(v));
      break;
    case DType::kI8:
      put(static_cast<int8_t>(v));
      break;
    case DType::kU8:
      put(static_cast<uint8_t>(v));
      break;
    case DType::kBool:
      put(static_cast<uint8_t>(v != 0));
      break;
  }
  return bits;
}

// Allocates nothing.
struct PadCall {
  uint64_t value;    // its lowest bytes
  TensorRef copied;  // where x goes

  PadCall(const Attrs& attrs, const TensorRef& x, const TensorRef& y)
      : value(bits_of(attrs.f("value"), y.dtype)),
        y_(y),
        dim_(static_cast<int>(attrs.i("dim"))),
        step_(attrs.i("interior") + 1),
        n_(x.shape[dim_]),
        // Where there is nothing, the new places are all there is.
        lo_(n_ > 0 ? attrs.i("lo") : y.shape[dim_]) {
    copied = part_of(y, dim_, lo_, n_, step_);
  }
  // Parts that are new: before x, behind it, and between its elements.
  int64_t n_filled() const { return 2 + (n_ > 1 ? step_ - 1 : 0); }
  TensorRef filled(int64_t i) const {
    const int64_t end = y_.shape[dim_], hi = n_ > 0 ? end - lo_ - (n_ - 1) * step_ - 1 : 0;
    if (i == 0) return part_of(y_, dim_, 0, lo_);
    if (i == 1) return part_of(y_, dim_, end - hi, hi);
    return part_of(y_, dim_, lo_ + i - 1, n_ - 1, step_);
  }

 private:
  TensorRef y_;
  int dim_;
  int64_t step_, n_, lo_;
};

}  // namespace tegula::kernel
