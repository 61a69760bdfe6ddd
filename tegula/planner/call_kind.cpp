// describe: which kind of call a step is, and how large, by its dim map alone.
#include <cmath>

#include "tegula/base/algorithm.h"
#include "tegula/io/sha256.h"
#include "tegula/ir/opdef.h"
#include "tegula/planner/calibration.h"
#include "tegula/tile/program.h"

namespace tegula::planner {

namespace {

// Which operands and results a factor indexes, a bit each.
using Group = uint64_t;

std::vector<Group> groups_of(const DimMap& map) {
  std::vector<Group> groups(map.factors.size(), 0);
  size_t bit = 0;
  for (const auto* side : {&map.operands, &map.results})
    for (const auto& tensor : *side) {
      for (const DimExpr& e : tensor)
        for (const DimTerm& t : e.terms) groups[t.factor] |= Group{1} << (bit % 64);
      ++bit;
    }
  return groups;
}

// The group of the dim whose elements lie next to each other.
Group innermost(const PlanTensor& t, const std::vector<DimExpr>& dims,
                const std::vector<Group>& groups) {
  int best = -1;
  for (int d = 0; d < t.type.shape.rank(); ++d)
    if (t.type.shape[d].bound() > 1 && (best < 0 || t.stride[d] <= t.stride[best])) best = d;
  if (best < 0 || dims[static_cast<size_t>(best)].terms.empty()) return 0;
  return groups[dims[static_cast<size_t>(best)].terms.back().factor];
}

void describe_fused(const Step& s, MeasuredCall& c, double& operations) {
  c.kind += cat(" ", sha256_hex(tile::to_text(*s.program)).substr(0, 16));
  int64_t elements = 1, row = 1;
  for (const auto* side : {&s.in, &s.out})
    for (const PlanTensor& t : *side) {
      const Shape& shape = t.type.shape;
      if (shape.numel() < elements) continue;
      elements = shape.numel(), row = 1;
      for (int d = std::max(0, shape.rank() - s.program->n_inner); d < shape.rank(); ++d)
        row *= shape[d].bound();
    }
  operations = 2 * real(elements) * real(static_cast<int64_t>(s.program->code.size()));
  c.extents = {std::log(real(std::max<int64_t>(1, elements)))};
  if (s.program->n_inner > 0) c.extents.push_back(std::log(real(std::max<int64_t>(1, row))));
}

void describe_op(const Step& s, MeasuredCall& c) {
  std::vector<Type> in, out;
  for (const PlanTensor& t : s.in) in.push_back(t.type);
  for (const PlanTensor& t : s.out) out.push_back(t.type);
  const OpCall call{s.op, &s.attrs, in, out, nullptr, {}};
  const auto map = s.regions.empty() ? dim_map(call) : Result<DimMap>(invalid_argument(""));
  if (!map.ok()) {
    c.extents = {std::log(1 + real(s.bytes))};
    return;
  }
  const std::vector<Group> groups = groups_of(*map);
  std::map<Group, double> extents;
  for (size_t f = 0; f < groups.size(); ++f)
    extents[groups[f]] += std::log(real(std::max<int64_t>(1, map->factors[f].size.bound())));
  for (const auto& [group, extent] : extents) {
    c.kind += cat(" ", group);
    c.extents.push_back(extent);
  }
  for (size_t i = 0; i < s.in.size(); ++i)
    c.kind += cat(" <", innermost(s.in[i], map->operands[i], groups));
}

}  // namespace

MeasuredCall describe(const Step& s, int n_threads) {
  MeasuredCall c;
  c.kernel = s.kernel ? std::string(s.kernel->name) : cat("reference ", s.op->name);
  c.kind = cat(c.kernel, " x", n_threads);
  for (const auto& [name, value] : s.attrs) {
    if (const auto* flag = value.get_if<bool>(); flag && *flag) c.kind += cat(" ", name);
    if (const auto* text = value.get_if<std::string>()) c.kind += cat(" ", name, "=", *text);
  }
  for (const auto* side : {&s.in, &s.out})
    for (const PlanTensor& t : *side) c.kind += cat(" ", t.type.dtype);
  double operations = real(s.flops);
  if (s.program)
    describe_fused(s, c, operations);
  else
    describe_op(s, c);
  c.nominal_s = 2e-7 + operations / 5e10 + real(s.bytes) / 2e10;
  return c;
}

}  // namespace tegula::planner
