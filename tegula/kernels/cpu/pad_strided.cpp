// pad: the new places are filled, then x is copied between them.
#include <cstring>

#include "tegula/base/half.h"
#include "tegula/kernels/cpu/common/strided.h"

namespace tegula::kernel {

namespace {
// The pad value in the tensor's dtype.
uint64_t bits_of(double v, DType t) {
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

void launch(const KernelCall& c) {
  const auto dim = static_cast<int>(c.attrs->i("dim"));
  const TensorRef &x = c.in[0], &y = c.out[0];
  const int64_t step = c.attrs->i("interior") + 1;
  // Of nothing, the new places are all there is.
  const int64_t end = y.shape[dim], lo = x.shape[dim] > 0 ? c.attrs->i("lo") : end;
  const int64_t hi = x.shape[dim] > 0 ? end - lo - (x.shape[dim] - 1) * step - 1 : 0;
  const uint64_t value = bits_of(c.attrs->f("value"), y.dtype);
  const int64_t n = x.shape[dim];
  fill_strided(&value, part_of(y, dim, 0, lo), *c.pool);
  fill_strided(&value, part_of(y, dim, y.shape[dim] - hi, hi), *c.pool);
  for (int64_t between = 1; between < step && n > 1; ++between)
    fill_strided(&value, part_of(y, dim, lo + between, n - 1, step), *c.pool);
  move_strided(x, part_of(y, dim, lo, n, step), *c.pool);
}
}  // namespace

extern constinit const KernelDef pad_strided = {
    .name = "pad_strided",
    .op = "pad",
    .order = "exact",
    .doc = "fills what is new, then copies",
    .supports = [](const KernelQuery&) { return true; },
    .launch = launch,
};

}  // namespace tegula::kernel
