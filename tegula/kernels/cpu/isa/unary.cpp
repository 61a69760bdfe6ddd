#include "tegula/kernels/cpu/isa/unary.h"

#include "tegula/kernels/cpu/isa/vecmath.h"

namespace tegula::kernel::TEGULA_ISA_NS {

template <class F>
static void apply(const UnaryArgs& a, F f) {
  int64_t i = 0;
  for (; i + kLanes <= a.n; i += kLanes) store(a.y + i, f(load(a.x + i)));
  const int left = static_cast<int>(a.n - i);
  if (left > 0) store_n(a.y + i, f(load_n(a.x + i, left)), left);
}

void unary(const UnaryArgs& a) {
  switch (a.f) {
    case Unary::kExp:
      return apply(a, [](Vf x) { return exp(x); });
    case Unary::kLog:
      return apply(a, [](Vf x) { return log(x); });
    case Unary::kTanh:
      return apply(a, [](Vf x) { return tanh(x); });
    case Unary::kSigmoid:
      return apply(a, [](Vf x) { return sigmoid(x); });
    case Unary::kErf:
      return apply(a, [](Vf x) { return erf(x); });
    case Unary::kSin:
      return apply(a, [](Vf x) { return sin(x); });
    case Unary::kCos:
      return apply(a, [](Vf x) { return cos(x); });
    case Unary::kRsqrt:
      return apply(a, [](Vf x) { return rsqrt(x); });
    case Unary::kGelu:
      return apply(a, [](Vf x) { return gelu(x); });
    case Unary::kSilu:
      return apply(a, [](Vf x) { return silu(x); });
  }
}

}  // namespace tegula::kernel::TEGULA_ISA_NS
