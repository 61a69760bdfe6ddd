// OpDef: everything the system knows of an op, declared in one place.
//
// Shape inference, error messages, least bytes and the sharding rule come from `dims`; gradients
// from `vjp`, `jvp` or `decompose`; the planner's price from `flops` and `bytes`; definition,
// oracle and fallback kernel from `reference`; tests from `samples`. The table of ops is generated
// from the file names of tegula/ops.
#pragma once

#include <array>
#include <span>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/ir/dim_map.h"
#include "tegula/ir/module.h"

namespace tegula {

class Builder;
class Var;
struct Counted;
struct Integer;
struct RegionDef;
struct CollectiveDef;
template <class S>
class RefArgs;
struct Sample;
namespace tile {
class Builder;
struct Reg;
}  // namespace tile

// One use of an op with its types. For `flops`, `bytes` and references every dim is constant.
struct OpCall {
  const OpDef* op = nullptr;
  const Attrs* attrs = nullptr;
  std::span<const Type> in;
  std::span<const Type> out;  // empty while results are being inferred
  const Module* module = nullptr;
  std::span<const FuncId> regions;

  const Shape& shape(size_t i) const { return in[i].shape; }
  const Function& region(size_t i) const { return (*module)[regions[i]]; }
};

enum class AttrKind : uint8_t { kBool, kInt, kFloat, kString, kDType, kInts, kDims };

struct AttrDef {
  std::string_view name;
  AttrKind kind = AttrKind::kInt;
  bool required = false;  // an absent optional attribute means false, 0, "" or none
  std::string_view doc;
};

// Overrides how a factor's partials combine, for every result or (result ≥ 0) for one.
struct Split {
  std::string_view factor;
  Combine combine = Combine::kFree;
  int result = -1;
};

// A fixed inline list, so that an OpDef is one constant without dangling views.
template <class T, size_t N>
struct InlineList {
  std::array<T, N> items{};
  size_t count = 0;
  constexpr InlineList() = default;
  constexpr InlineList(std::initializer_list<T> list) {
    for (const T& t : list) items[count++] = t;
  }
  constexpr const T* begin() const { return items.data(); }
  constexpr const T* end() const { return items.data() + count; }
  constexpr size_t size() const { return count; }
};

// The reference, instantiated from one functor: the f64 oracle, which also counts FLOPs and touched
// bytes, the naive kernel of float tensors, and, for ops that take them, exact integers that wrap:
// what runs where no operand and no result is a float.
struct Reference {
  void (*f64)(RefArgs<Counted>&) = nullptr;
  void (*f32)(RefArgs<float>&) = nullptr;
  void (*ints)(RefArgs<Integer>&) = nullptr;  // null: floats only
};

// The input of a derivative rule. An absent gradient or tangent is an invalid Var and means zero.
struct VjpCall {
  const OpCall* call = nullptr;
  std::span<const Var> in;
  std::span<const Var> out;
  std::span<const Var> grad;  // d loss / d out
  const Attrs& attrs() const { return *call->attrs; }
};
struct JvpCall {
  const OpCall* call = nullptr;
  std::span<const Var> in;
  std::span<const Var> out;
  std::span<const Var> tangent;  // of each input
  const Attrs& attrs() const { return *call->attrs; }
};

struct Bytes {
  int64_t read = 0;
  int64_t written = 0;
};

// How autocast deals with an op: compute in bf16, keep f32, or follow the inputs.
enum class Precision : uint8_t { kFollow, kLow, kHigh };

struct OpDef {
  std::string_view name;     // = file stem
  std::string_view formula;  // one line of maths
  std::string_view source;   // paper, section; empty for the obvious
  std::string_view group;    // heading in docs/ops.md

  // Exactly one of dims, dims_fn and regions (whose types are then the results'; a fused node has
  // both). With types_fn, `types` only says who shares operand 0's dtype.
  std::string_view dims;  // short form, see solve_dims
  Result<DimMap> (*dims_fn)(const OpCall&) = nullptr;
  std::string_view types;  // e.g. "T, i -> T, f32", see infer()
  Result<std::vector<DType>> (*types_fn)(const OpCall&) = nullptr;
  InlineList<AttrDef, 16> attrs;
  const RegionDef* regions = nullptr;  // how its regions are used (ir/regions.h); null: has none
  InlineList<Split, 8> split;
  Status (*check)(const OpCall&) = nullptr;  // what dims and types cannot say

  // Cost at constant shapes. flops null: 0. bytes null: every operand read and result written once.
  int64_t (*flops)(const OpCall&) = nullptr;
  Bytes (*bytes)(const OpCall&) = nullptr;

  // Derivatives. Neither: the op is not differentiable (its results are constants to autodiff),
  // unless `decompose` is there, which is differentiated in its place. A rule that gives no Vars at
  // all passes: this call is differentiated through `decompose`.
  std::vector<Var> (*vjp)(Builder&, const VjpCall&) = nullptr;
  std::vector<Var> (*jvp)(Builder&, const JvpCall&) = nullptr;
  // The op in simpler ops; used by autodiff, and by lowering where a device has no kernel.
  std::vector<Var> (*decompose)(Builder&, const OpCall&, std::span<const Var> in) = nullptr;

  // The op's lowering to the tile language, for elementwise ops and row reductions.
  tile::Reg (*tile)(tile::Builder&, const OpCall&, std::span<const tile::Reg> in) = nullptr;

  Reference reference;
  std::vector<Sample> (*samples)() = nullptr;

  // For a part [lo, hi) of a factor: the attributes of the local op (target shapes, paddings, …).
  Attrs (*localize)(const OpCall&, const DimMap&, int factor, int64_t lo, int64_t hi) = nullptr;

  const CollectiveDef* collective = nullptr;  // ranks execute it together (ir/collective.h)

  bool is_view = false;         // result 0 is a view of operand 0: no bytes move
  bool is_elementwise = false;  // all operands and results have one shape; may run in place
  bool is_linear = false;       // jointly linear in all operands: its jvp is the op on tangents
  bool is_multilinear = false;  // linear in each operand apart
  bool is_reduction = false;    // a tile reduction over attr "dims"
  bool is_commutative = false;  // its two operands may be exchanged without changing a bit
  bool is_rowwise = false;      // rows do not know where they stand: part of a leading factor is
                                // the op on that part, its attributes localised
  std::string_view joins;       // attribute: along this dim result 0 is the operands in a row
  bool has_effect = false;      // never merged with another of its kind (barrier)
  InlineList<std::array<int8_t, 2>, 4> aliases;  // {operand, result}: result may overwrite operand
  Precision precision = Precision::kFollow;
};

// Checks attributes, operands and types and returns the result types; errors name the op.
// Types language: per operand and result one of a dtype name, "T"/"U" (any, the same throughout),
// "F" (like T, but a float), "A" (what F's sums are kept in, see accumulator), "i" (i32 or i64),
// "b" (bool), "*" (any); operands past the list that ends in "..." repeat the last one; one with a
// "?" after it may be missing, from the end.
Result<std::vector<Type>> infer(const OpCall& call);
// The op's DimMap with `split` applied.
Result<DimMap> dim_map(const OpCall& call);

// Cost at constant shapes; views cost nothing.
int64_t flops_of(const OpCall& call);
Bytes bytes_of(const OpCall& call);

// The table, ordered by name (defined by tegula/ops).
std::span<const OpDef* const> all_ops();
const OpDef* find_op(std::string_view name);  // null: none

}  // namespace tegula
