#include "tegula/text/json_form.h"

#include <cstdio>

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"

namespace tegula {

std::string text_of(const Json* value) {
  const auto* text = value != nullptr ? value->as<std::string>() : nullptr;
  return text != nullptr ? *text : "";
}

bool is_true(const Json* value) {
  const bool* b = value != nullptr ? value->as<bool>() : nullptr;
  return b != nullptr && *b;
}

bool is_absent(const Json* value) { return value == nullptr || value->is_null(); }

std::string to_hex(uint32_t value, int n_digits) { return printed("%0*X", n_digits, value); }

Status check_keys(const Json& part, std::string_view name,
                  std::initializer_list<std::string_view> keys) {
  const auto* members = part.as<Json::Object>();
  if (members == nullptr) return invalid_argument(cat("its ", name, " is no object"));
  for (const Json::Member& m : *members)
    if (m.key != "type" && std::find(keys.begin(), keys.end(), m.key) == keys.end())
      return unsupported(cat("its ", name, " has the key ", m.key, ", which tegula does not read"));
  return {};
}

const Json::Array& list_of(const Json* value) {
  static const Json::Array none;
  const auto* list = value != nullptr ? value->as<Json::Array>() : nullptr;
  return list != nullptr ? *list : none;
}

Result<std::string> need_text(const Json& part, std::string_view name, std::string_view key) {
  const Json* value = part.find(key);
  if (value == nullptr || value->as<std::string>() == nullptr)
    return invalid_argument(cat("its ", name, " has no ", key));
  return *value->as<std::string>();
}

}  // namespace tegula
