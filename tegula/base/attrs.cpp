#include "tegula/base/attrs.h"

#include <algorithm>

namespace tegula {

static auto lower(auto& items, std::string_view name) {
  return std::lower_bound(items.begin(), items.end(), name,
                          [](const auto& item, std::string_view n) { return item.first < n; });
}

void Attrs::set(std::string_view name, AttrValue value) {
  auto it = lower(items_, name);
  if (it != items_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    if (items_.empty()) items_.reserve(2), it = items_.begin();  // most have one or two
    items_.emplace(it, std::string(name), std::move(value));
  }
}

void Attrs::erase(std::string_view name) {
  auto it = lower(items_, name);
  if (it != items_.end() && it->first == name) items_.erase(it);
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [known, value] : items_)  // few, and told apart by their length mostly
    if (known == name) return &value;
  return nullptr;
}

}  // namespace tegula
