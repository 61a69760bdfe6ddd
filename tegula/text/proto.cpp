#include "tegula/text/proto.h"

#include <bit>

namespace tegula {

float ProtoField::f32() const { return std::bit_cast<float>(static_cast<uint32_t>(value)); }

Result<uint64_t> ProtoReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  return invalid_argument("a number of it does not end");
}

Result<bool> ProtoReader::next(ProtoField& field) {
  if (rest_.empty()) return false;
  const uint64_t tag = TEGULA_TRY(varint());
  field = {.number = static_cast<uint32_t>(tag >> 3)};
  const auto take = [&](uint64_t n) -> Status {
    if (n > rest_.size())
      return invalid_argument(cat("field ", field.number, " has ", n, " bytes, and ", rest_.size(),
                                  " are left: it is cut short"));
    field.bytes = rest_.substr(0, static_cast<size_t>(n));
    rest_.remove_prefix(static_cast<size_t>(n));
    return {};
  };
  switch (tag & 7) {
    case 0:
      field.value = TEGULA_TRY(varint());
      return true;
    case 2:
      TEGULA_TRY(take(TEGULA_TRY(varint())));
      return true;
    case 1:
    case 5:
      TEGULA_TRY(take((tag & 7) == 1 ? 8 : 4));
      for (size_t i = field.bytes.size(); i > 0; --i)
        field.value = field.value << 8 | static_cast<unsigned char>(field.bytes[i - 1]);
      return true;
    default:
      return invalid_argument(cat("field ", field.number, " has the wire type ", tag & 7));
  }
}

}  // namespace tegula
