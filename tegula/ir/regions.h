// RegionDef: how an op uses the functions that its node holds as regions, as data. Types, FLOPs,
// plans, the checks of a plan, and the interpreter read it, and know no op by name.
//
// Operands stand in the order predicate, carries, xs, invariants; results in the order carries, ys,
// saved carries. A body takes (carries, one slice of each x, invariants) and gives (the next
// carries, one slice of each y). A loop's carries lie in its results from the first round on.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tegula/ir/opdef.h"

namespace tegula {

enum class RegionRole : uint8_t {
  kBody,       // once, or in every round of a loop
  kCondition,  // before every round, of the body's operands: one bool, whether to go on
  kBranch,     // operand 0, a bool, chooses one: the first if it is true, else the second
  kProgram,    // part of its node's kernel: neither a pipeline nor a plan of its own
};

struct RegionPart {
  std::string_view name;  // "the body", for errors
  RegionRole role = RegionRole::kBody;
};

// Strings are names of the op's attributes; an empty one: it has no such thing.
struct RegionDef {
  InlineList<RegionPart, 2> parts;
  std::string_view carries;  // how many operands are carried from round to round
  std::string_view slices;   // how many operands a round sees one slice of, along dim 0
  std::string_view length;   // rounds; results behind the carries are stacked, one slice a round
  std::string_view most_rounds;  // rounds at most, while the condition holds
  std::string_view reverse;      // slices from the last to the first
  std::string_view saves;        // carries whose values before each round are results, stacked
  // A program's operands that are not its own, and its first parameters, which the kernel makes of
  // them.
  size_t n_factors = 0, n_made = 0;

  constexpr bool is_program() const {
    return parts.size() == 1 && parts.items[0].role == RegionRole::kProgram;
  }
  constexpr bool is_choice() const { return parts.items[0].role == RegionRole::kBranch; }
  // The part that gives the results (of a choice, the first one that does).
  constexpr size_t body() const {
    return parts.size() > 1 && parts.items[0].role == RegionRole::kCondition ? 1 : 0;
  }
};

// Are its regions functions that are rewritten and planned by themselves?
inline bool has_bodies(const OpDef& op) { return op.regions && !op.regions->is_program(); }

// Where operands stand. Attributes must be checked; allocates nothing.
struct RegionLayout {
  size_t first = 0;  // operands before the body's own: the predicate
  size_t n_carry = 0, n_xs = 0, n_invariants = 0;
  std::span<const int64_t> saves;  // in the attributes
  RegionLayout(const RegionDef& def, const Attrs& attrs, size_t n_operands);
  size_t n_operands() const { return first_invariant() + n_invariants; }
  size_t first_invariant() const { return first + n_carry + n_xs; }
  bool is_carry(size_t i) const { return i >= first && i < first + n_carry; }
  bool is_x(size_t i) const { return i >= first + n_carry && i < first_invariant(); }
};

// Rounds at these extents: of a while, at most.
int64_t region_rounds(const RegionDef& def, const Attrs& attrs, std::span<const int64_t> extents);

// May the result take the operand's memory? A loop starts from a carry where it lies.
bool starts_in_place(const OpDef& op, const Attrs& attrs, size_t operand, size_t result);

// Result types, from the regions' own. Errors: a region that does not fit what it is given.
Result<std::vector<Type>> region_results(const OpCall& call);

// The DimMap of an op that no rank may cut: one whole factor per distinct size.
DimMap whole_map(const OpCall& call, std::span<const Type> results);

std::vector<Type> result_types(const Function& f);
// x without its leading dim, and with one.
Type slice_type(const Type& x);
Type stacked_type(Dim length, const Type& slice);

}  // namespace tegula
