// How scan's operands and results lie, and its derivatives.
#pragma once

#include <vector>

#include "tegula/ir/builder.h"
#include "tegula/ir/regions.h"

namespace tegula {

struct ScanLayout : RegionLayout {
  size_t n_ys = 0;
  Dim length;
  explicit ScanLayout(const OpCall& c);
  // The type that the body sees of an operand.
  Type inner(size_t i, const Type& outer) const;
};

std::vector<Var> scan_vjp(Builder& b, const VjpCall& c);
std::vector<Var> scan_jvp(Builder& b, const JvpCall& c);

}  // namespace tegula
