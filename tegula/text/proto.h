// Protocol buffers, as far as a reader of one message needs them: its fields, one after the other.
//
// Errors: kInvalidArgument for what ends within a field, and for wire types that are none.
// Source: the encoding of protobuf.dev, wire types 0, 1, 2 and 5.
#pragma once

#include <cstdint>
#include <string_view>

#include "tegula/base/result.h"

namespace tegula {

struct ProtoField {
  uint32_t number = 0;
  uint64_t value = 0;      // of a varint, or the bits of a fixed one
  std::string_view bytes;  // of a string, or of a message within
  float f32() const;
};

class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}
  // False: there are no more.
  Result<bool> next(ProtoField& field);

 private:
  Result<uint64_t> varint();
  std::string_view rest_;
};

}  // namespace tegula
