// Rules that ops share: a DimMap written dim by dim, the part of a shape that is an attribute, the
// tangent of what is linear in its first operand.
#pragma once

#include "tegula/ops/common/elementwise.h"

namespace tegula {

class MapMaker {
 public:
  explicit MapMaker(size_t n_operands, size_t n_results = 1);
  uint8_t factor(std::string name, Dim size, bool is_whole = false);
  // The index of a dim that one factor walks, and of one that is read or written whole.
  static DimExpr plain(uint8_t factor) { return {0, {{factor, 1}}}; }
  static DimExpr whole() { return {0, {}, true}; }
  // The next dim of an operand, and of a result, of that size.
  void operand(size_t k, DimExpr index) { map_.operands[k].push_back(std::move(index)); }
  void operand(size_t k, uint8_t factor) { operand(k, plain(factor)); }
  void result(size_t r, Dim size, DimExpr index);
  void result(size_t r, Dim size, uint8_t factor) { result(r, size, plain(factor)); }
  DimMap done(Combine contracted = Combine::kSum) &&;

 private:
  DimMap map_;
};

// Views have this in common; `def` brings the rest.
constexpr OpDef view_op(OpDef def) {
  def.group = "view", def.types = "T -> T", def.is_view = def.is_linear = true;
  return def;
}

// The attributes of a part [lo, hi) of factor d, which is dim d of the shape `name`.
Attrs resized(const OpCall& c, std::string_view name, int d, int64_t lo, int64_t hi);

// The dtype that the attribute `dtype` names.
Result<std::vector<DType>> named_dtype(const OpCall& c);

// The op itself on the tangent of operand 0, the others (ids, starts) as they are.
Grads jvp_of_first(Builder& b, const JvpCall& c);

}  // namespace tegula
