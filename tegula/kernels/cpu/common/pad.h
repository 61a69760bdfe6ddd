// A `pad` call as parts of its result: those that are filled, and where x goes.
#pragma once

#include <cstring>
#include <vector>

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

struct PadCall {
  uint64_t value;  // its lowest bytes
  std::vector<TensorRef> filled;
  TensorRef copied;

  PadCall(const Attrs& attrs, const TensorRef& x, const TensorRef& y)
      : value(bits_of(attrs.f("value"), y.dtype)) {
    const auto dim = static_cast<int>(attrs.i("dim"));
    const int64_t step = attrs.i("interior") + 1, n = x.shape[dim], end = y.shape[dim];
    // Of nothing, the new places are all there is.
    const int64_t lo = n > 0 ? attrs.i("lo") : end;
    const int64_t hi = n > 0 ? end - lo - (n - 1) * step - 1 : 0;
    filled = {part_of(y, dim, 0, lo), part_of(y, dim, end - hi, hi)};
    for (int64_t between = 1; between < step && n > 1; ++between)
      filled.push_back(part_of(y, dim, lo + between, n - 1, step));
    copied = part_of(y, dim, lo, n, step);
  }
};

}  // namespace tegula::kernel
