// y[i] = f(x[i]) for one function of vecmath.h over contiguous f32.
#pragma once

#include <cstdint>

namespace tegula::kernel {

enum class Unary : uint8_t { kExp, kLog, kTanh, kSigmoid, kErf, kSin, kCos, kRsqrt, kGelu, kSilu };

struct UnaryArgs {
  Unary f;
  const float* x;
  float* y;
  int64_t n;
};

}  // namespace tegula::kernel
