#include <charconv>

#include "tegula/io/gguf.h"
#include "tegula/io/gguf_types.h"

namespace tegula {
namespace {

// Bytes of a value of that type; 0: it says so itself.
constexpr uint64_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
constexpr std::string_view kTypeNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};

}  // namespace

uint64_t gguf_width(GgufType type) { return kWidths[static_cast<size_t>(type)]; }
std::string_view gguf_type_name(GgufType type) { return kTypeNames[static_cast<size_t>(type)]; }

double shortest_double(float x) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, x).ptr;
  double back = x;
  std::from_chars(text, end, back);
  return back;
}

std::optional<int64_t> GgufValue::whole() const {
  if (is_array_) return {};
  switch (type_) {
    case GgufType::kU8:
      return load_gguf<uint8_t>(at_);
    case GgufType::kI8:
      return load_gguf<int8_t>(at_);
    case GgufType::kU16:
      return load_gguf<uint16_t>(at_);
    case GgufType::kI16:
      return load_gguf<int16_t>(at_);
    case GgufType::kU32:
      return load_gguf<uint32_t>(at_);
    case GgufType::kI32:
      return load_gguf<int32_t>(at_);
    case GgufType::kU64:
      return load_gguf<uint64_t>(at_) <= uint64_t{INT64_MAX}
                 ? std::optional(load_gguf<int64_t>(at_))
                 : std::nullopt;
    case GgufType::kI64:
      return load_gguf<int64_t>(at_);
    default:
      return {};
  }
}

std::optional<double> GgufValue::number() const {
  if (is_array_) return {};
  if (type_ == GgufType::kF32) return shortest_double(load_gguf<float>(at_));
  if (type_ == GgufType::kF64) return load_gguf<double>(at_);
  const auto i = whole();
  return i ? std::optional(static_cast<double>(*i)) : std::nullopt;
}

std::optional<bool> GgufValue::flag() const {
  return !is_array_ && type_ == GgufType::kBool ? std::optional(*at_ != 0) : std::nullopt;
}

std::optional<std::string_view> GgufValue::text() const {
  return !is_array_ && type_ == GgufType::kString ? std::optional(std::string_view(at_, n_))
                                                  : std::nullopt;
}

GgufValue GgufValue::array(GgufType of, uint64_t n, const char* at) {
  GgufValue v(of, n, at);
  v.is_array_ = true;
  return v;
}

std::vector<GgufValue> GgufValue::elements() const {
  std::vector<GgufValue> all;
  if (!is_array_) return all;
  all.reserve(n_);
  const char* at = at_;
  for (uint64_t i = 0; i < n_; ++i) {
    if (type_ == GgufType::kString) {
      const auto n = load_gguf<uint64_t>(at);
      all.push_back(GgufValue(type_, n, at + sizeof n));
      at += sizeof n + n;
    } else {
      all.push_back(GgufValue(type_, 1, at));
      at += gguf_width(type_);
    }
  }
  return all;
}

std::string GgufValue::type_name() const {
  return cat(is_array_ ? "array of " : "", gguf_type_name(type_));
}

std::string GgufValue::shown() const {
  if (is_array_) return cat("an array of ", n_, " ", gguf_type_name(type_));
  if (const auto t = text()) return cat("\"", t->substr(0, 60), t->size() > 60 ? "…\"" : "\"");
  if (const auto b = flag()) return *b ? "true" : "false";
  if (const auto i = whole()) return cat(*i);
  return cat(number().value_or(0));
}

}  // namespace tegula
