// TensorSource: the bytes of tensors that are written one after the other, without all of them in
// memory at once.
#pragma once

#include <string_view>

#include "tegula/io/file.h"

namespace tegula {

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  // All bytes of the tensor, row-major, in the dtype that it was announced with.
  virtual Status write(std::string_view name, OutputFile& out) = 0;
};

}  // namespace tegula
