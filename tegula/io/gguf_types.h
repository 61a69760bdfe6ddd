// The types of a GGUF file's values and tensors, by their numbers.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "tegula/base/block_format.h"
#include "tegula/base/dtype.h"

namespace tegula {

enum class GgufType : uint32_t;
struct GgufTensor;

// Bytes of a value of that type; 0: it says so itself.
uint64_t gguf_width(GgufType type);
std::string_view gguf_type_name(GgufType type);
template <class T>
T load_gguf(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct GgufTensorType {
  uint32_t id;
  std::string_view name;
  std::optional<DType> dtype = {};  // of values that lie one by one
  std::optional<BlockFormat> format = {};
};

// Null: no type has that number. One with neither dtype nor format is known and not read.
const GgufTensorType* find_gguf_type(uint32_t id);
const GgufTensorType* find_gguf_type(DType dtype);
const GgufTensorType& gguf_type_of(const GgufTensor& tensor);
// "F32, F16, …": those that are read.
std::string readable_gguf_types();

}  // namespace tegula
