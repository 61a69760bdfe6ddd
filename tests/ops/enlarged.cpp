#include "tests/ops/enlarged.h"

#include <cmath>

namespace tegula::testing {

namespace {

struct Growth {
  int factor;
  int64_t from, to;
};

// A dim's extent once the factor has grown.
Dim grown(const DimExpr& e, Dim extent, const Growth& g) {
  for (const DimTerm& t : e.terms) {
    if (t.factor != g.factor) continue;
    const bool is_product = e.terms.size() > 1 && e.offset == 0 && !e.is_window;
    if (is_product) return extent.bound() / g.from * g.to;
    return extent.bound() + t.coeff.bound() * (g.to - g.from);
  }
  return extent.bound();
}
Shape grown(const std::vector<DimExpr>& dims, const Shape& shape, const Growth& g) {
  Shape s;
  for (size_t d = 0; d < dims.size(); ++d)
    s.push_back(grown(dims[d], shape[static_cast<int>(d)], g));
  return s;
}

// Values of the old shape, in each dim again and again.
std::vector<double> repeated(const std::vector<double>& values, const Shape& from,
                             const Shape& to) {
  std::vector<int64_t> sizes;
  for (const Dim& d : to) sizes.push_back(d.bound());
  std::vector<double> out;
  for_each_index(sizes, [&](const Index& i) {
    int64_t at = 0;
    for (int d = 0; d < from.rank(); ++d)
      at = at * from[d].bound() + i[static_cast<size_t>(d)] % from[d].bound();
    out.push_back(values[static_cast<size_t>(at)]);
  });
  return out;
}

// Attributes that say a result's shape, or the factor's size alone.
Attrs grown(const Attrs& attrs, const Case& c, const DimMap& m, const Growth& g) {
  Attrs out = attrs;
  for (const auto& [name, value] : attrs) {
    const auto as_dims = [&]() -> std::vector<int64_t> {
      std::vector<int64_t> v;
      if (const auto* dims = value.get_if<std::vector<Dim>>())
        for (const Dim& d : *dims) v.push_back(d.bound());
      if (const auto* ints = value.get_if<std::vector<int64_t>>()) v = *ints;
      return v;
    };
    std::vector<int64_t> now = as_dims();
    if (now.empty()) continue;
    bool changes = now.size() == 1 && now[0] == g.from;
    if (changes) now[0] = g.to;
    for (size_t r = 0; r < c.out.size() && !changes; ++r) {
      const Shape &was = c.out[r].shape, will = grown(m.results[r], was, g);
      bool is_shape = static_cast<int>(now.size()) == was.rank();
      for (int d = 0; is_shape && d < was.rank(); ++d)
        is_shape = was[d] == Dim(now[static_cast<size_t>(d)]);
      if (!is_shape) continue;
      changes = true;
      for (int d = 0; d < was.rank(); ++d) now[static_cast<size_t>(d)] = will[d].bound();
    }
    if (!changes) continue;
    if (value.holds<std::vector<int64_t>>())
      out.set(name, now);
    else
      out.set(name, std::vector<Dim>(now.begin(), now.end()));
  }
  return out;
}

// One number that is the factor's size, wherever it stands: a kernel's, a count of groups.
std::vector<Attrs> with_number(const Attrs& attrs, const Growth& g) {
  std::vector<Attrs> all;
  for (const auto& [name, value] : attrs) {
    if (const auto* i = value.get_if<int64_t>(); i && *i == g.from) {
      all.push_back(attrs);
      all.back().set(name, g.to);
    }
    const auto* ints = value.get_if<std::vector<int64_t>>();
    for (size_t k = 0; ints && k < ints->size(); ++k) {
      if ((*ints)[k] != g.from) continue;
      std::vector<int64_t> now = *ints;
      now[k] = g.to;
      all.push_back(attrs);
      all.back().set(name, std::move(now));
    }
  }
  return all;
}

bool has_grown(const OpDef& op, const Sample& sample, const DimMap& before, const Growth& g) {
  Case c;
  c.op = &op, c.sample = sample;
  for (const SampleInput& in : sample.in) c.in.push_back(in.type);
  if (!infer(c.call()).ok()) return false;
  const auto m = dim_map(c.call());
  if (!m.ok() || m->factors.size() != before.factors.size()) return false;
  for (size_t f = 0; f < before.factors.size(); ++f) {
    const Dim want = static_cast<int>(f) == g.factor ? Dim(g.to) : before.factors[f].size;
    if (m->factors[f].size.bound() != want.bound()) return false;
  }
  return true;
}

}  // namespace

std::optional<Sample> enlarged(const OpDef& op, const Sample& sample, int factor, int64_t size) {
  const Case c = make_case(op, sample, 1);
  const auto m = dim_map(c.call());
  if (!m.ok()) return {};
  const Growth g{factor, m->factors[static_cast<size_t>(factor)].size.bound(), size};
  Sample large = sample;
  for (size_t k = 0; k < c.in.size(); ++k) {
    SampleInput& in = large.in[k];
    in.type.shape = grown(m->operands[k], c.in[k].shape, g);
    const bool selects =
        m->factors[static_cast<size_t>(factor)].index_operand == static_cast<int>(k);
    if (!in.values.empty()) in.values = repeated(in.values, c.in[k].shape, in.type.shape);
    if (!selects) continue;
    in.high += static_cast<double>(g.to - g.from);
    for (double& v : in.values)
      v = std::floor(v * static_cast<double>(g.to) / static_cast<double>(g.from));
  }
  if (has_grown(op, large, *m, g)) return large;
  large.attrs = grown(sample.attrs, c, *m, g);
  if (has_grown(op, large, *m, g)) return large;
  for (Attrs& attrs : with_number(sample.attrs, g)) {
    large.attrs = std::move(attrs);
    if (has_grown(op, large, *m, g)) return large;
  }
  return {};
}

std::optional<Sample> enlarged_all(const OpDef& op, const Sample& sample, int factor, int64_t size,
                                   int64_t other, int64_t most) {
  std::optional<Sample> large = enlarged(op, sample, factor, size);
  if (!large) return {};
  const auto is_small = [&](const Sample& s) {
    Case c;
    c.op = &op, c.sample = s;
    for (const SampleInput& in : s.in) {
      if (in.type.shape.numel() > most) return false;
      c.in.push_back(in.type);
    }
    auto out = infer(c.call());
    if (!out.ok()) return false;
    c.out = std::move(*out);
    for (const Type& t : c.out)
      if (t.shape.numel() > most) return false;
    return flops_of(c.call()) <= 100 * most;
  };
  const Case c = make_case(op, sample, 1);
  const auto m = dim_map(c.call());
  for (size_t f = 0; m.ok() && f < m->factors.size(); ++f) {
    if (static_cast<int>(f) == factor || m->factors[f].size.bound() >= other ||
        m->factors[f].size.bound() < 2)
      continue;
    if (auto next = enlarged(op, *large, static_cast<int>(f), other); next && is_small(*next))
      large = std::move(next);
  }
  return large;
}

}  // namespace tegula::testing
