#include "tegula/passes/exact_cuts.h"

#include <algorithm>

#include "tegula/ops/table.h"

namespace tegula {

namespace {

// The factor of operand 0 that varies slowest among those that are summed.
bool is_outermost_of_sum(const DimMap& map, int factor) {
  for (const DimExpr& e : map.operands[0])
    for (const DimTerm& t : e.terms)
      if (map.combine[t.factor][0] == Combine::kSum && !(map.factors[t.factor].size == Dim(1)))
        return t.factor == factor;
  return false;
}

}  // namespace

bool has_no_order(DType dtype, Combine how) {
  return how == Combine::kMax || how == Combine::kMin || (how == Combine::kSum && !is_float(dtype));
}

SumCut cut_of_sum(const LocalCall& c, const DimMap& map, const AxisCut& cut, int64_t n_ranks,
                  const std::vector<AxisSharding>& give, bool is_addend) {
  if (cut.kind != AxisCut::kAlong) return SumCut::kPends;
  bool is_free = true;
  for (size_t r = 0; r < give.size(); ++r)
    is_free &= !give[r].is_pending() || has_no_order(c.out[r].dtype, give[r].combine);
  if (is_free) return SumCut::kPends;
  if (cut.parts != 1) return SumCut::kRefused;
  const SumShards shards = SumShards::of(c.attrs);
  if (c.op == &dot_op && !shards.any()) {
    const bool may = c.attrs.get_or<int64_t>("k_shards", 1) % n_ranks == 0 &&
                     is_outermost_of_sum(map, cut.factor);
    return may ? SumCut::kPends : SumCut::kRefused;
  }
  if (cut.factor == outer_factor(map))
    return shards.outer % n_ranks == 0 ? SumCut::kPends : SumCut::kRefused;
  if (cut.factor != inner_factor(map) || shards.inner % n_ranks != 0) return SumCut::kRefused;
  return shards.outer == 1 && !is_addend ? SumCut::kPends : SumCut::kExchanged;
}

bool is_exchanged(const LocalCall& c, const DimMap& map, const AxisCut& cut, size_t r,
                  const AxisSharding& state) {
  return cut.kind == AxisCut::kAlong && SumShards::of(c.attrs).inner > 1 &&
         cut.factor == inner_factor(map) && state.is_replicated() &&
         map.combine[static_cast<size_t>(cut.factor)][r] == Combine::kSum;
}

}  // namespace tegula
