#include "tegula/base/attrs.h"

#include <cstdlib>

#include "tegula/base/algorithm.h"

namespace tegula {

static_assert(sizeof(std::vector<int64_t>) <= sizeof(std::string) && alignof(std::string) <= 8);

AttrValue::AttrValue(std::string v) : index_(3) { new (bytes_) std::string(std::move(v)); }
AttrValue::AttrValue(std::vector<int64_t> v) : index_(5) {
  new (bytes_) std::vector<int64_t>(std::move(v));
}
AttrValue::AttrValue(std::vector<Dim> v) : index_(6) {
  new (bytes_) std::vector<Dim>(std::move(v));
}
AttrValue::AttrValue(const AttrValue& other) : index_(other.index_) {
  other.visit([this]<class T>(const T& v) { new (bytes_) T(v); });
}
AttrValue::AttrValue(AttrValue&& other) noexcept : index_(other.index_) {
  other.visit([this]<class T>(const T& v) { new (bytes_) T(std::move(const_cast<T&>(v))); });
}
AttrValue& AttrValue::operator=(AttrValue other) noexcept {
  this->~AttrValue();
  return *new (this) AttrValue(std::move(other));
}
void AttrValue::destroy() noexcept {
  visit([]<class T>(const T& v) { const_cast<T&>(v).~T(); });
}
void AttrValue::wrong_type() {
  TEGULA_CHECK(false, "an attribute of another type");
  std::abort();
}
bool operator==(const AttrValue& a, const AttrValue& b) {
  return a.index_ == b.index_ && a.visit([&]<class T>(const T& v) { return v == b.as<T>(); });
}

Attrs::Attrs(std::initializer_list<Named> list) {
  items_.reserve(list.size());
  for (const Named& n : list)
    if (items_.empty() || items_.back().name < n.name)
      items_.push_back({std::string(n.name), n.value});
    else
      set(n.name, n.value);
}
Attrs::Attrs(const Attrs& other) = default;
Attrs& Attrs::operator=(const Attrs& other) = default;
Attrs& Attrs::operator=(Attrs&& other) noexcept {  // which gets, and frees, what this one had
  items_.swap(other.items_);
  return *this;
}
Attrs::~Attrs() = default;
bool operator==(const Attrs& a, const Attrs& b) { return a.items_ == b.items_; }

void Attrs::not_there(std::string_view name) {
  TEGULA_CHECK(false, "attribute ", name);
  std::abort();
}
bool Attrs::flag(std::string_view name) const { return get_or<bool>(name, false); }
int64_t Attrs::i(std::string_view name) const { return get<int64_t>(name); }
double Attrs::f(std::string_view name) const { return get<double>(name); }
const std::string& Attrs::str(std::string_view name) const { return get<std::string>(name); }
const std::vector<int64_t>& Attrs::ints(std::string_view name) const {
  return get<std::vector<int64_t>>(name);
}
const std::vector<Dim>& Attrs::dims(std::string_view name) const {
  return get<std::vector<Dim>>(name);
}
DType Attrs::dtype(std::string_view name) const { return get<DType>(name); }

static auto lower(auto& items, std::string_view name) {
  return std::lower_bound(items.begin(), items.end(), name,
                          [](const auto& item, std::string_view n) { return item.name < n; });
}

void Attrs::set(std::string_view name, AttrValue value) {
  auto it = lower(items_, name);
  if (it != items_.end() && it->name == name) {
    it->value = std::move(value);
  } else {
    if (items_.empty()) items_.reserve(2), it = items_.begin();  // most have one or two
    items_.insert(it, {std::string(name), std::move(value)});
  }
}

void Attrs::erase(std::string_view name) {
  auto it = lower(items_, name);
  if (it != items_.end() && it->name == name) items_.erase(it);
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [known, value] : items_)  // few, and told apart by their length mostly
    if (known == name) return &value;
  return nullptr;
}

}  // namespace tegula
