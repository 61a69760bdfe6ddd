#include "tegula/ir/hash.h"

#include <bit>
#include <cstring>
#include <map>

#include "tegula/ir/opdef.h"

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
uint64_t hash_one(std::string_view s) {
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

uint64_t hash_of(std::string_view text) { return hash_one(text); }

uint64_t hash_of(const Attrs& attrs) {
  uint64_t h = attrs.size();
  for (const auto& [name, value] : attrs) {
    h = mix(h, hash_one(name));
    h = mix(h, value.visit([](const auto& v) { return hash_one(v); }) + value.index());
  }
  return h;
}

uint64_t hash_of(const Type& type) {
  uint64_t h = static_cast<uint64_t>(type.dtype);
  for (const Dim& d : type.shape) h = mix(h, hash_one(d));
  return h;
}

namespace {

class FunctionHash {
 public:
  explicit FunctionHash(const Module& m) : m_(m) {}

  uint64_t of(const Function& f) {
    uint64_t h = hash_one(f.name);
    // As in the text: parameters, then nodes.
    std::vector<uint64_t> number(f.values.size());
    uint64_t next = 0;
    for (const Param& p : f.params) {
      number[p.value] = next++;
      h = mix(h, hash_one(p.name));
      h = mix(mix(h, static_cast<uint64_t>(p.role)), static_cast<uint64_t>(p.donated_to));
      h = value(f, p.value, h);
    }
    for (const Node& n : f.nodes) {
      h = mix(mix(h, hash_one(n.op->name)), hash_of(n.attrs));
      for (ValueId v : n.inputs) h = mix(h, number[v]);
      for (FuncId r : n.regions) h = mix(h, region(r));
      h = mix(h, n.inputs.size() << 32 | n.regions.size());
      for (uint32_t i = 0; i < n.n_outputs; ++i) {
        number[n.output(i)] = next++;
        h = value(f, n.output(i), h);
      }
      h = mix(mix(h, static_cast<uint64_t>(n.phase)), hash_one(m_.scopes[n.origin.scope]));
    }
    for (const Output& r : f.results) h = mix(mix(h, hash_one(r.name)), number[r.value]);
    return h;
  }

 private:
  uint64_t value(const Function& f, ValueId v, uint64_t h) {
    h = type(f.type(v), h);
    const Sharding* s = f.sharding(v);
    if (!s) return h;
    for (size_t a = 0; a < s->size(); ++a) {
      const AxisSharding& state = (*s)[a];
      h = mix(mix(h, hash_one(m_.mesh.axes[a].name)), hash_one(m_.mesh.axes[a].size));
      h = mix(mix(h, static_cast<uint64_t>(state.placement)), static_cast<uint64_t>(state.dim));
      h = mix(mix(h, hash_one(state.parts)), static_cast<uint64_t>(state.combine));
    }
    return mix(h, s->size());
  }
  uint64_t type(const Type& t, uint64_t h) const {
    h = mix(mix(h, hash_of(t)), static_cast<uint64_t>(t.shape.rank()));
    for (const Dim& d : t.shape)
      if (!d.is_const()) {
        const Symbol& s = m_.symbols[static_cast<size_t>(d.symbol)];
        h = mix(mix(h, hash_one(s.name)), hash_one(s.bound));
      }
    return h;
  }
  // Many nodes may share one.
  uint64_t region(FuncId r) {
    const auto it = known_.find(r);
    if (it != known_.end()) return it->second;
    const uint64_t h = of(m_[r]);
    return known_[r] = h;
  }

  const Module& m_;
  std::map<FuncId, uint64_t> known_;
};

}  // namespace

uint64_t hash_of(const Module& module, const Function& f) { return FunctionHash(module).of(f); }

bool same_attrs(const Attrs& a, const Attrs& b) {
  if (a.size() != b.size()) return false;
  for (auto i = a.begin(), j = b.begin(); i != a.end(); ++i, ++j) {
    if (i->name != j->name || i->value.index() != j->value.index()) return false;
    const double* x = i->value.get_if<double>();
    if (x ? hash_one(*x) != hash_one(j->value.get<double>()) : i->value != j->value) return false;
  }
  return true;
}

}  // namespace tegula
