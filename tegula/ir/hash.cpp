#include "tegula/ir/hash.h"

#include <bit>
#include <cstring>

namespace tegula {

namespace {
uint64_t hash_one(const Dim& d) {
  return mix(static_cast<uint64_t>(d.offset),
             mix(static_cast<uint64_t>(d.scale), static_cast<uint64_t>(d.symbol)));
}
uint64_t hash_one(bool v) { return v; }
uint64_t hash_one(int64_t v) { return static_cast<uint64_t>(v); }
uint64_t hash_one(double v) { return std::bit_cast<uint64_t>(v); }
uint64_t hash_one(DType v) { return static_cast<uint64_t>(v); }
uint64_t hash_one(const std::string& s) {
  uint64_t h = s.size(), word = 0;
  size_t at = 0;
  for (; at + sizeof word <= s.size(); at += sizeof word) {
    std::memcpy(&word, s.data() + at, sizeof word);
    h = mix(h, word);
  }
  word = 0;
  std::memcpy(&word, s.data() + at, s.size() - at);
  return mix(h, word);
}
template <class T>
uint64_t hash_one(const std::vector<T>& v) {
  uint64_t h = v.size();
  for (const T& x : v) h = mix(h, hash_one(x));
  return h;
}
}  // namespace

uint64_t hash_of(const Attrs& attrs) {
  uint64_t h = attrs.size();
  for (const auto& [name, value] : attrs) {
    h = mix(h, hash_one(name));
    h = mix(h, std::visit([](const auto& v) { return hash_one(v); }, value) + value.index());
  }
  return h;
}

uint64_t hash_of(const Type& type) {
  uint64_t h = static_cast<uint64_t>(type.dtype);
  for (const Dim& d : type.shape) h = mix(h, hash_one(d));
  return h;
}

bool same_attrs(const Attrs& a, const Attrs& b) {
  if (a.size() != b.size()) return false;
  for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j) {
    if (i->first != j->first || i->second.index() != j->second.index()) return false;
    const double* x = std::get_if<double>(&i->second);
    if (x ? hash_one(*x) != hash_one(std::get<double>(j->second)) : i->second != j->second)
      return false;
  }
  return true;
}

}  // namespace tegula
