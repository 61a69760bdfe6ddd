// GGUF files, version 3, written front to back.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tegula/base/dtype.h"
#include "tegula/io/tensor_source.h"

namespace tegula {

struct GgufOutKey {
  using Value = std::variant<uint32_t, float, bool, std::string, std::vector<std::string>,
                             std::vector<float>, std::vector<int32_t>>;
  std::string name;
  Value value;
};

struct GgufOutTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // row-major, at most 4 dims
};

// The keys, then the tensors' names, types and places, then their bytes by the source. The caller
// finishes the file. Error: kUnsupported for a dtype that the format has not.
Status write_gguf(OutputFile& out, const std::vector<GgufOutKey>& keys,
                  const std::vector<GgufOutTensor>& tensors, TensorSource& source);

}  // namespace tegula
