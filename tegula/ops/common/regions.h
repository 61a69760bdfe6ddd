// Shared by ops with regions: their cost, derivatives of functions, and functions cut to what is
// used. How regions are used at all stands in ir/regions.h.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tegula/ir/builder.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ir/reference.h"
#include "tegula/ir/regions.h"

namespace tegula {

// Bounded symbols at the extents that the operands' constant shapes imply, from the parameters of
// the region they are passed to (parameter i takes operand `first + i`), and results from its own;
// else the bounds.
std::vector<int64_t> extents_from(const OpCall& call, const Function& region, size_t first);
// FLOPs of a node, and Σ of a function's, at those extents.
int64_t flops_of(const Module& module, const Function& f, const Node& n,
                 std::span<const int64_t> extents);
int64_t flops_of(const Module& module, const Function& f, std::span<const int64_t> extents);
// Those of a call with regions: rounds · (condition + body), or the dearer branch.
int64_t region_flops(const OpCall& call);

// For every parameter: does a result (of those to keep, if they are told) depend on it?
std::vector<bool> live_params(const Function& f, const std::vector<bool>* keep_result = nullptr);
// f with only the parameters and results to keep, and the nodes these results need. A parameter
// dropped must not be live then.
Function restrict_to(const Function& f, const std::vector<bool>& keep_param,
                     const std::vector<bool>& keep_result);

// A name for a new function of b's module, unlike all others.
std::string fresh_name(Builder& b, std::string_view what);

// x[t] of a leading dim.
TensorRef slice_at(const TensorRef& t, int64_t index);
// Operands of region ops are read, and results written, as wholes.
template <class S>
void touch_all(RefArgs<S>& a) {
  for (auto* touched : {a.touched_in, a.touched_out})
    if (touched)
      for (auto& t : *touched) std::fill(t.begin(), t.end(), uint8_t{1});
}

// Functions of b's module that apply a function's derivatives:
//   pullback: (params…, gradient of each float result…) -> (gradient of each float param…)
//   pushforward: (params…, tangent of each active param…) -> (tangent of each float result…)
Result<FuncId> region_pullback(Builder& b, FuncId f);
Result<FuncId> region_pushforward(Builder& b, FuncId f, std::span<const Var> tangents);

// v, or zeros of `like` where v is invalid.
Var or_zeros(Var v, Var like);
// The valid Vars of a list, after those of another.
std::vector<Var> join_valid(std::span<const Var> first, std::span<const Var> maybe);
// The inverse for results: one value for each float among `like`, invalid for the others.
std::vector<Var> spread_floats(std::span<const Var> like, std::span<const Var> values);

}  // namespace tegula
