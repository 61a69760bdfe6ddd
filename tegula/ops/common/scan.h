// How scan's operands and results lie, and its derivatives.
#pragma once

#include <vector>

#include "tegula/ir/builder.h"

namespace tegula {

struct ScanLayout {
  size_t n_carry = 0, n_xs = 0, n_invariants = 0, n_ys = 0;
  std::vector<int64_t> saves;
  Dim length;
  explicit ScanLayout(const OpCall& c);
  size_t first_invariant() const { return n_carry + n_xs; }
  size_t n_operands() const { return n_carry + n_xs + n_invariants; }
  bool is_x(size_t i) const { return i >= n_carry && i < first_invariant(); }
  // What the body sees of an operand.
  Type inner(size_t i, const Type& outer) const;
};

std::vector<Var> scan_vjp(Builder& b, const VjpCall& c);
std::vector<Var> scan_jvp(Builder& b, const JvpCall& c);

}  // namespace tegula
