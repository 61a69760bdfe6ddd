// Shared by ops along the lines of one dim: dims, the walk, attributes, samples.
#pragma once

#include "tegula/ops/common/elementwise.h"
#include "tegula/ops/cumulative.h"

namespace tegula {

inline constexpr AttrDef kLineDim = {"dim", AttrKind::kInt, true, "which dim"};
inline constexpr AttrDef kLineReverse = {"reverse", AttrKind::kBool, false, "from the end"};

// `spec` without names, e.g. "..., ... -> ..."; the line is never cut.
Result<DimMap> line_dims(const OpCall& c, std::string_view spec);

// Calls fn(index, j) for j = 0, 1, … along each line, in the order that `reverse` asks for.
template <class S, class F>
void for_each_in_lines(const RefArgs<S>& a, F&& fn) {
  const auto dim = static_cast<size_t>(a.attrs().i("dim"));
  const bool reverse = a.attrs().flag("reverse");
  const auto shape = shape_of(a.in[0]);
  const int64_t n = shape[dim];
  Index lines{};
  std::copy(shape.begin(), shape.end(), lines.begin());
  lines[dim] = 1;
  for_each_index(std::span<const int64_t>(lines).first(shape.size()), [&](const Index& line) {
    Index i = line;
    for (int64_t j = 0; j < n; ++j) {
      i[dim] = reverse ? n - 1 - j : j;
      fn(static_cast<const Index&>(i), j);
    }
  });
}

// x moved one place along `dim`, away from where a line begins (or, with `back`, towards it);
// `value` comes in.
Var shifted(Var x, const Attrs& line, double value, bool back = false);

// Samples of n operands.
std::vector<Sample> line_samples(int n, double low, double high);

}  // namespace tegula
