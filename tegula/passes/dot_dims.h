// The factors of a dot, by operand: what passes that merge dots look at.
#pragma once

#include <string_view>
#include <vector>

#include "tegula/ir/module.h"

namespace tegula {

struct DotDims {
  std::vector<std::string_view> a, b, out;

  explicit DotDims(std::string_view spec);  // "b s k, k n -> b s n"; views of it
  static bool has(const std::vector<std::string_view>& names, std::string_view name);
  // How many trailing dims of the result come from b alone; -1: one that does stands before others.
  int trailing_n() const;
};

// A dot of two operands, without scale, bias or activation.
bool is_plain_dot(const Node& n);

}  // namespace tegula
