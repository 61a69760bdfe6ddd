#include "tegula/io/stored_tensor.h"

#include <cstring>

#include "tegula/base/half.h"
#include "tegula/base/result.h"

namespace tegula {

const uint8_t* StoredTensor::row(int64_t i) const {
  return rows.as<const uint8_t>() + order.in_file(i) * rows.stride[0] * size_bytes(rows.dtype);
}

void StoredTensor::read_row(int64_t i, float* to) const {
  const int64_t n = n_values();
  const uint8_t* from = row(i);
  const auto widen = [&]<class Half>(Half) {
    for (int64_t k = 0; k < n; ++k) {
      Half h;
      std::memcpy(&h, from + k * static_cast<int64_t>(sizeof h), sizeof h);
      to[k] = static_cast<float>(h);
    }
  };
  if (format)
    dequantise_blocks(*format, from, n, to);
  else if (rows.dtype == DType::kF32)
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(float));
  else if (rows.dtype == DType::kF16)
    widen(f16());
  else if (rows.dtype == DType::kBF16)
    widen(bf16());
  else
    TEGULA_CHECK(false, "rows of ", rows.dtype);
  if (less != 0)
    for (int64_t k = 0; k < n; ++k) to[k] -= less;
}

}  // namespace tegula
