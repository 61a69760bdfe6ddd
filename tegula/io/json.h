// Json: a JSON value, parsed strictly and printed the same way each time.
//
// Objects keep the order of their keys. Integers (int64) and other numbers (double) are told
// apart and both survive a round trip exactly; NaN and infinities print as null.
// parse: RFC 8259, UTF-8 checked, at most 128 levels deep, no key twice in one object; an integer
// beyond int64 becomes a double.
// Errors: kInvalidArgument with the place and what was expected.
// Cost: linear; an object's find() is a linear search.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tegula/base/result.h"

namespace tegula {

class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  // Defined below Member, without which a compiler may refuse to make the variant.
  Json() = default;  // null
  Json(std::nullptr_t);
  Json(bool value);
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Json(T value);
  Json(double value);
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  Json(Array value);
  Json(Object value);
  static Json object(std::initializer_list<Member> members = {});

  // `what` names the text in errors: a path, usually.
  static Result<Json> parse(std::string_view text, std::string_view what);
  // indent < 0: one line; else each member and element on a line of its own. Bytes of strings
  // that are not UTF-8 print as U+FFFD.
  std::string dump(int indent = -1) const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_number() const { return as<int64_t>() != nullptr || as<double>() != nullptr; }
  // The value if it is a bool, int64_t, double, std::string, Array or Object, else null.
  template <class T>
  const T* as() const {
    return std::get_if<T>(&value_);
  }
  template <class T>
  T* as() {
    return std::get_if<T>(&value_);
  }
  double number(double otherwise) const;

  // Objects: the member's value, or null pointer; null pointer also for what is no object.
  const Json* find(std::string_view key) const;
  // The member's value if it is there and of that type, else null.
  template <class T>
  const T* find_as(std::string_view key) const {
    const Json* value = find(key);
    return value ? value->as<T>() : nullptr;
  }
  // Objects (null becomes one): replaces or appends.
  void set(std::string_view key, Json value);

  friend bool operator==(const Json& a, const Json& b);

 private:
  void append_to(std::string& out, int indent, int depth) const;
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
  friend bool operator==(const Member& a, const Member& b) = default;
};

template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) Json::Json(T value)
    : value_(static_cast<int64_t>(value)) {}

// An array of json_of(item) for each item.
template <class Items, class F>
Json::Array json_list(const Items& items, F&& json_of) {
  Json::Array all;
  for (const auto& item : items) all.push_back(json_of(item));
  return all;
}

}  // namespace tegula
