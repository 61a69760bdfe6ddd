#include "tegula/passes/exact_cuts.h"

#include "tegula/base/range.h"
#include "tegula/ops/math.h"
#include "tegula/ops/table.h"
#include "tegula/passes/sum_shards.h"

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

// A dim of one element is none to who lowers a sum: dims that are summed on both sides of it, or
// before it where it is the last, would be one row, and be added in another order.
bool leaves_one_beside_sum(const LocalCall& c, const DimMap& map, const AxisCut& cut,
                           int64_t n_ranks) {
  bool sums_before = false;
  for (const DimExpr& e : map.operands[0])
    for (const DimTerm& t : e.terms) {
      if (t.factor == cut.factor)
        return sums_before && map.factors[t.factor].size == Dim(n_ranks * cut.parts);
      const Combine how = map.combine[t.factor][0];
      sums_before |= how != Combine::kFree && !has_no_order(c.out[0].dtype, how);
    }
  return false;
}

}  // namespace

bool has_no_order(DType dtype, Combine how) {
  return how == Combine::kMax || how == Combine::kMin || (how == Combine::kSum && !is_float(dtype));
}

SumCut cut_of_sum(const LocalCall& c, const DimMap& map, const AxisCut& cut, int64_t n_ranks,
                  const std::vector<AxisSharding>& give) {
  if (cut.factor < 0) return SumCut::kPends;
  const bool sums = any_of(give, [](const auto& s) { return s.is_pending(); });
  if (!sums && c.op->is_reduction && leaves_one_beside_sum(c, map, cut, n_ranks))
    return SumCut::kRefused;
  bool is_free = true;
  for (size_t r = 0; r < give.size(); ++r)
    is_free &= !give[r].is_pending() || has_no_order(c.out[r].dtype, give[r].combine);
  if (is_free) return SumCut::kPends;
  if (cut.parts != 1 || cut.kind == AxisCut::kRows) return SumCut::kRefused;
  const SumShards shards = SumShards::of(c.attrs);
  if (c.op == &dot_op && !shards.any()) {
    const bool may = c.attrs.get_or<int64_t>("k_shards", 1) % n_ranks == 0 &&
                     is_outermost_of_sum(map, cut.factor);
    return may ? SumCut::kPends : SumCut::kRefused;
  }
  if (cut.factor == outer_factor(map))
    return shards.outer % n_ranks == 0 ? SumCut::kPends : SumCut::kRefused;
  if (cut.factor != inner_factor(map) || shards.inner % n_ranks != 0) return SumCut::kRefused;
  return shards.outer == 1 ? SumCut::kPends : SumCut::kExchanged;
}

bool is_exchanged(const LocalCall& c, const DimMap& map, const AxisCut& cut, size_t r,
                  const AxisSharding& state) {
  return cut.kind == AxisCut::kAlong && SumShards::of(c.attrs).inner > 1 &&
         cut.factor == inner_factor(map) && state.is_replicated() &&
         map.combine[static_cast<size_t>(cut.factor)][r] == Combine::kSum;
}

Result<std::vector<Var>> emit_exchanged(Builder& b, const LocalCall& call, std::span<const Var> in,
                                        std::span<const Exchanged> exchanged, Loc loc) {
  const auto parts = TEGULA_TRY(emit_by_shards(b, call, in, loc));
  std::vector<Var> out;
  for (size_t r = 0; r < parts.size(); ++r) {
    const Exchanged& groups = exchanged[r];
    if (groups.empty()) {
      out.push_back(parts[r].joined());
      continue;
    }
    Var x = parts[r].side_by_side();
    for (size_t i = groups.size(); i-- > 0;) x = all_reduce(x, groups[i]);
    out.push_back(ByShards::together(x).joined());
  }
  return out;
}

Result<std::vector<Var>> emit_pending(Builder& b, LocalCall call, std::span<const Var> in,
                                      std::span<const uint8_t> pends, Loc loc) {
  const auto is_narrow = [](DType t) { return is_float(t) && t != accumulator(t); };
  if (call.op == &dot_op && is_narrow(call.out[0].dtype))
    call.attrs.set("out", accumulator(call.out[0].dtype));
  const bool has_narrow = any_of(call.out, [&](const Type& t) { return is_narrow(t.dtype); });
  std::vector<Var> out;
  if (call.op == &dot_op || !has_narrow || !SumShards::of(call.attrs).any()) {
    out = b.emit_n(*call.op, call.attrs, in, call.regions, loc);
    if (b.failed()) return b.error();
  } else {
    for (const ByShards& x : TEGULA_TRY(emit_by_shards(b, call, in, loc)))
      out.push_back(x.joined());
  }
  for (size_t r = 0; r < out.size(); ++r)
    if (pends[r] != 0 && is_narrow(out[r].dtype()))
      out[r] = cast(out[r], accumulator(out[r].dtype()));
  return out;
}

}  // namespace tegula
