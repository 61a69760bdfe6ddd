// DimMap: how an op's operands and results index its iteration space. Everything the system knows
// of an op's structure comes from it: result shapes, error messages, least bytes, sharding.
//
// A *factor* is one loop of the op. Every dim of every operand and result is an affine function of
// factors: index = offset + Σ coeff_t·factor_t. That one form covers plain dims ("m"), products
// ("(hk g)" = g_size·hk + g), windows (stride·ho + dilation·kh − pad), slices (start + step·i) and
// concatenated pieces (index − offset, absent outside the piece).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tegula/base/result.h"
#include "tegula/base/shape.h"

namespace tegula {

// How partial results over a cut factor make the whole one, per result.
enum class Combine : uint8_t {
  kFree,         // the factor indexes the result: pieces are laid side by side
  kSum,          // Σ of partials
  kMax,          // elementwise max of partials
  kMin,          // elementwise min of partials
  kLogSumExp,    // log Σ exp of partials
  kLseWeighted,  // Σ partial·exp(lse_partial − lse): this result goes with a kLogSumExp result
  kEqual,        // every part computes the same result
  kNever,        // the factor cannot be cut
};

struct Factor {
  std::string name;
  Dim size;
  bool whole = false;      // must not be cut
  int index_operand = -1;  // selection: this operand's integers index the factor; out of a part's
                           // range they select nothing (value 0)
  int ragged_by = -1;      // cut only at the offsets that this operand holds (cu_seqlens)
};

struct DimTerm {
  uint8_t factor = 0;
  Dim coeff = 1;
};

struct DimExpr {
  int64_t offset = 0;
  std::vector<DimTerm> terms;  // product dims: major first; empty: extent 1 (or never indexed)
  bool is_window = false;      // more than one term, or range exceeding the dim: read with a halo
  bool is_plain() const {
    return offset == 0 && terms.size() == 1 && terms[0].coeff == Dim(1) && !is_window;
  }
};

struct DimMap {
  DimMap();
  DimMap(const DimMap& other);
  DimMap(DimMap&& other) noexcept;
  DimMap& operator=(const DimMap& other);
  DimMap& operator=(DimMap&& other) noexcept;
  ~DimMap();
  std::vector<Factor> factors;
  std::vector<std::vector<DimExpr>> operands;  // [operand][dim]
  std::vector<std::vector<DimExpr>> results;   // [result][dim]
  std::vector<Shape> result_shapes;
  std::vector<std::vector<Combine>> combine;  // [factor][result]

  // Index of the factor, or -1.
  int find(std::string_view name) const;
  int add_factor(std::string name, Dim size);
  // Sets combine for every (factor, result): kFree where the factor indexes the result, else
  // `contracted` (or kNever for whole factors). Call last; then override single entries.
  void finish(Combine contracted = Combine::kSum);
};

// The short form. Operands and results separated by ",", then "->"; dims by spaces; "(a b)" is a
// product, "1" a dim of extent 1, "..." any number of leading dims, the same in every operand that
// has it. Factor sizes are solved from the operand shapes; sizes named in `known` come first.
// Operands absent from `in` (optional ones at the end) are skipped. Errors name op and operand:
// "attention: k has d=80, q has d=64".
struct NamedDim {
  std::string_view name;
  Dim size;
};
Result<DimMap> solve_dims(std::string_view op, std::string_view spec, std::span<const Type> in,
                          std::span<const NamedDim> known = {});

}  // namespace tegula
