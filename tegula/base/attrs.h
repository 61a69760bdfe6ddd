// Attrs: a node's compile-time arguments, a small sorted list of (name, value).
#pragma once

#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tegula/base/dtype.h"
#include "tegula/base/shape.h"

namespace tegula {

// One of bool, int64_t, double, std::string, DType, std::vector<int64_t> and std::vector<Dim>. (A
// std::variant of them takes longer to compile than most files that include it.)
class AttrValue {
 public:
  AttrValue() : AttrValue(false) {}
  AttrValue(bool v) { new (bytes_) bool(v); }
  // Those that int64_t holds.
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> &&
           (std::is_signed_v<T> || sizeof(T) < sizeof(int64_t))) AttrValue(T v)
      : index_(1) {
    new (bytes_) int64_t(v);
  }
  AttrValue(double v) : index_(2) { new (bytes_) double(v); }
  AttrValue(const char* v) : AttrValue(std::string(v)) {}
  AttrValue(std::string v);
  AttrValue(DType v) : index_(4) { new (bytes_) DType(v); }
  AttrValue(std::vector<int64_t> v);
  AttrValue(std::vector<Dim> v);
  AttrValue(const AttrValue& other);
  AttrValue(AttrValue&& other) noexcept;
  AttrValue& operator=(AttrValue other) noexcept;
  ~AttrValue() {
    if (owns_memory()) destroy();
  }

  // Which of the types, in the order above.
  size_t index() const { return index_; }
  template <class T>
  bool holds() const {
    return index_ == index_of<T>();
  }
  template <class T>
  const T* get_if() const {
    return holds<T>() ? &as<T>() : nullptr;
  }
  template <class T>
  T* get_if() {
    return holds<T>() ? &as<T>() : nullptr;
  }
  // It must hold one.
  template <class T>
  const T& get() const {
    if (!holds<T>()) wrong_type();
    return as<T>();
  }
  template <class T>
  T& get() {
    return const_cast<T&>(std::as_const(*this).get<T>());
  }
  // fn(value), whatever its type.
  template <class F>
  decltype(auto) visit(F&& fn) const {
    switch (index_) {
      case 0:
        return fn(as<bool>());
      case 1:
        return fn(as<int64_t>());
      case 2:
        return fn(as<double>());
      case 3:
        return fn(as<std::string>());
      case 4:
        return fn(as<DType>());
      case 5:
        return fn(as<std::vector<int64_t>>());
      default:
        return fn(as<std::vector<Dim>>());
    }
  }
  friend bool operator==(const AttrValue& a, const AttrValue& b);

 private:
  template <class T>
  static constexpr size_t index_of() {
    if constexpr (std::is_same_v<T, bool>) return 0;
    if constexpr (std::is_same_v<T, int64_t>) return 1;
    if constexpr (std::is_same_v<T, double>) return 2;
    if constexpr (std::is_same_v<T, std::string>) return 3;
    if constexpr (std::is_same_v<T, DType>) return 4;
    if constexpr (std::is_same_v<T, std::vector<int64_t>>) return 5;
    if constexpr (std::is_same_v<T, std::vector<Dim>>) return 6;
  }
  template <class T>
  const T& as() const {
    return *std::launder(reinterpret_cast<const T*>(bytes_));
  }
  template <class T>
  T& as() {
    return *std::launder(reinterpret_cast<T*>(bytes_));
  }
  bool owns_memory() const { return index_ == 3 || index_ > 4; }
  void destroy() noexcept;
  [[noreturn]] static void wrong_type();

  uint8_t index_ = 0;
  alignas(8) unsigned char bytes_[sizeof(std::string)];
};

struct Attr {
  std::string name;
  AttrValue value;
  friend bool operator==(const Attr& a, const Attr& b) = default;
};

class Attrs {
 public:
  struct Named {
    std::string_view name;
    AttrValue value;
  };
  Attrs() = default;
  Attrs(std::initializer_list<Named> list);
  Attrs(const Attrs& other);
  Attrs(Attrs&& other) noexcept : items_(std::move(other.items_)) {}
  Attrs& operator=(const Attrs& other);
  Attrs& operator=(Attrs&& other) noexcept;
  ~Attrs();
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
    if (!v || !v->holds<T>()) not_there(name);
    return *v->get_if<T>();
  }
  template <class T>
  T get_or(std::string_view name, T fallback) const {
    const AttrValue* v = find(name);
    return v ? v->get<T>() : fallback;
  }
  bool flag(std::string_view name) const;
  int64_t i(std::string_view name) const;
  double f(std::string_view name) const;
  const std::string& str(std::string_view name) const;
  const std::vector<int64_t>& ints(std::string_view name) const;
  const std::vector<Dim>& dims(std::string_view name) const;
  DType dtype(std::string_view name) const;

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  size_t size() const { return items_.size(); }
  friend bool operator==(const Attrs& a, const Attrs& b);

 private:
  [[noreturn]] static void not_there(std::string_view name);
  std::vector<Attr> items_;  // sorted by name
};

}  // namespace tegula
