#include "tests/ops/parts.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace tegula::testing {

namespace {

std::vector<int64_t> indices_of_dim(const DimMap& m, const DimExpr& e, int64_t extent,
                                    std::span<const Part> parts) {
  const auto part_of = [&](const DimTerm& t) {
    return std::find_if(parts.begin(), parts.end(),
                        [&](const Part& p) { return p.factor == t.factor; });
  };
  std::vector<int64_t> all(static_cast<size_t>(extent));
  std::iota(all.begin(), all.end(), int64_t{0});
  bool is_cut = false;
  for (const DimTerm& t : e.terms) is_cut |= part_of(t) != parts.end();
  if (!is_cut) return all;
  std::vector<int64_t> at = {e.offset};
  for (const DimTerm& t : e.terms) {
    const auto p = part_of(t);
    const int64_t begin = p != parts.end() ? p->lo : 0;
    const int64_t end = p != parts.end() ? p->hi : m.factors[t.factor].size.bound();
    std::vector<int64_t> next;
    for (int64_t base : at)
      for (int64_t i = begin; i < end; ++i) next.push_back(base + t.coeff.bound() * i);
    at = std::move(next);
  }
  std::vector<int64_t> kept;
  if (e.is_window) {  // a halo: every index from the first read to the last
    const auto [first, last] = std::minmax_element(at.begin(), at.end());
    for (int64_t i = at.empty() ? 0 : *first; !at.empty() && i <= *last; ++i)
      kept.push_back(i >= 0 && i < extent ? i : -1);
    return kept;
  }
  for (int64_t i : at)  // a piece of a concatenation is absent outside itself
    if (i >= 0 && i < extent) kept.push_back(i);
  return kept;
}

}  // namespace

Indices indices(const DimMap& m, const std::vector<DimExpr>& dims, const Shape& whole,
                std::span<const Part> parts) {
  Indices all;
  for (size_t d = 0; d < dims.size(); ++d)
    all.push_back(indices_of_dim(m, dims[d], whole[static_cast<int>(d)].bound(), parts));
  return all;
}

Shape shape_of_part(const Indices& at) {
  Shape s;
  for (const auto& dim : at) s.push_back(static_cast<int64_t>(dim.size()));
  return s;
}

void copy_element(HostTensor& to, int64_t i, const HostTensor& from, int64_t j) {
  if (to.type.dtype != from.type.dtype) return to.put(i, from.at(j));
  const auto size = static_cast<size_t>(size_bytes(to.type.dtype));
  std::memcpy(to.bytes.data() + static_cast<size_t>(i) * size,
              from.bytes.data() + static_cast<size_t>(j) * size, size);
}

HostTensor operand_of(const DimMap& m, size_t k, const HostTensor& whole,
                      std::span<const Part> parts) {
  const Indices at = indices(m, m.operands[k], whole.type.shape, parts);
  int64_t shift = 0;
  for (const Part& p : parts)
    if (m.factors[static_cast<size_t>(p.factor)].index_operand == static_cast<int>(k)) shift = p.lo;
  HostTensor part(Type{whole.type.dtype, shape_of_part(at)});
  for_each_element(at, whole.type.shape, [&](int64_t i, int64_t from) {
    if (from < 0) return;
    copy_element(part, i, whole, from);
    if (shift != 0) part.put(i, part.at(i) - static_cast<double>(shift));
  });
  return part;
}

int64_t aligned(const DimMap& m, std::span<const Type> types, size_t from, int64_t i, size_t to) {
  std::array<int64_t, kMaxRank> index{};
  const Shape& s = types[from].shape;
  for (int d = s.rank(); d-- > 0;) {
    index[static_cast<size_t>(d)] = i % s[d].bound();
    i /= s[d].bound();
  }
  auto same = [](const DimExpr& a, const DimExpr& b) {
    if (a.terms.size() != b.terms.size()) return false;
    for (size_t t = 0; t < a.terms.size(); ++t)
      if (a.terms[t].factor != b.terms[t].factor) return false;
    return true;
  };
  int64_t at = 0;
  for (size_t d = 0; d < m.results[to].size(); ++d) {
    size_t match = 0;
    while (match < m.results[from].size() && !same(m.results[from][match], m.results[to][d]))
      ++match;
    TEGULA_CHECK(match < m.results[from].size(), "no dim of result ", from, " goes with ", to);
    at = at * types[to].shape[static_cast<int>(d)].bound() + index[match];
  }
  return at;
}

bool is_cuttable(const DimMap& m, size_t factor) {
  const Factor& f = m.factors[factor];
  return !f.whole && f.size.bound() >= 2 &&
         std::find(m.combine[factor].begin(), m.combine[factor].end(), Combine::kNever) ==
             m.combine[factor].end();
}

}  // namespace tegula::testing
