// Attrs: a node's compile-time arguments, a small sorted list of (name, value).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tegula/base/dtype.h"
#include "tegula/base/shape.h"

namespace tegula {

using AttrValue =
    std::variant<bool, int64_t, double, std::string, DType, std::vector<int64_t>, std::vector<Dim>>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string_view, AttrValue>> list) {
    for (auto& [name, value] : list) set(name, value);
  }
  void set(std::string_view name, AttrValue value);
  void erase(std::string_view name);
  const AttrValue* find(std::string_view name) const;
  AttrValue* find(std::string_view name) {
    return const_cast<AttrValue*>(std::as_const(*this).find(name));
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // The value, which must be there with that type (OpDef::attrs is checked before any use).
  template <class T>
  const T& get(std::string_view name) const {
    const AttrValue* v = find(name);
    TEGULA_CHECK(v && std::holds_alternative<T>(*v), "attribute ", name);
    return std::get<T>(*v);
  }
  template <class T>
  T get_or(std::string_view name, T fallback) const {
    const AttrValue* v = find(name);
    return v ? std::get<T>(*v) : fallback;
  }
  bool flag(std::string_view name) const { return get_or<bool>(name, false); }
  int64_t i(std::string_view name) const { return get<int64_t>(name); }
  double f(std::string_view name) const { return get<double>(name); }
  const std::string& str(std::string_view name) const { return get<std::string>(name); }
  const std::vector<int64_t>& ints(std::string_view name) const {
    return get<std::vector<int64_t>>(name);
  }
  const std::vector<Dim>& dims(std::string_view name) const { return get<std::vector<Dim>>(name); }
  DType dtype(std::string_view name) const { return get<DType>(name); }

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::vector<std::pair<std::string, AttrValue>> items_;  // sorted by name
};

}  // namespace tegula
