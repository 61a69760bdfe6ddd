#include "tegula/base/element.h"

#include "tegula/base/half.h"
#include "tegula/base/integer.h"

namespace tegula {

double load_element(const TensorRef& t, int64_t o) {
  switch (t.dtype) {
    case DType::kF64:
      return t.as<double>()[o];
    case DType::kF32:
      return t.as<float>()[o];
    case DType::kBF16:
      return static_cast<float>(t.as<bf16>()[o]);
    case DType::kF16:
      return static_cast<float>(t.as<f16>()[o]);
    case DType::kF8E4M3:
      return static_cast<float>(t.as<f8e4m3>()[o]);
    default:
      return static_cast<double>(load_int(t, o));
  }
}

void store_element(const TensorRef& t, int64_t o, double value) {
  switch (t.dtype) {
    case DType::kF64:
      t.as<double>()[o] = value;
      break;
    case DType::kF32:
      t.as<float>()[o] = static_cast<float>(value);
      break;
    case DType::kBF16:
      t.as<bf16>()[o] = bf16(static_cast<float>(value));
      break;
    case DType::kF16:
      t.as<f16>()[o] = f16(static_cast<float>(value));
      break;
    case DType::kF8E4M3:
      t.as<f8e4m3>()[o] = f8e4m3(static_cast<float>(value));
      break;
    default:
      store_int(t, o, truncated_int(t.dtype, value));
  }
}

int64_t load_int(const TensorRef& t, int64_t o) {
  switch (t.dtype) {
    case DType::kI64:
      return t.as<int64_t>()[o];
    case DType::kI32:
      return t.as<int32_t>()[o];
    case DType::kI8:
      return t.as<int8_t>()[o];
    case DType::kU8:
      return t.as<uint8_t>()[o];
    case DType::kBool:
      return t.as<uint8_t>()[o];
    default:
      return static_cast<int64_t>(load_element(t, o));
  }
}

void store_int(const TensorRef& t, int64_t o, int64_t v) {
  switch (t.dtype) {
    case DType::kI64:
      t.as<int64_t>()[o] = v;
      break;
    case DType::kI32:
      t.as<int32_t>()[o] = static_cast<int32_t>(v);
      break;
    case DType::kI8:
      t.as<int8_t>()[o] = static_cast<int8_t>(v);
      break;
    case DType::kU8:
      t.as<uint8_t>()[o] = static_cast<uint8_t>(v);
      break;
    case DType::kBool:
      t.as<uint8_t>()[o] = v != 0;
      break;
    default:
      store_element(t, o, static_cast<double>(v));
  }
}

double rounded_to(DType dtype, double value) {
  alignas(8) unsigned char bytes[8] = {};
  TensorRef t;
  t.data = bytes, t.dtype = dtype;
  store_element(t, 0, value);
  return load_element(t, 0);
}

}  // namespace tegula
