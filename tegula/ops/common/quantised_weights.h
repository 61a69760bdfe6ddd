// Shared by the products with quantised weights (dot_quantised, dot_i8): q [k, n] i8, or of 4 bits
// u8 [k / 2, n], a byte's low half before its high one, and scale f32 [groups, n].
#pragma once

#include "tegula/ops/common/elementwise.h"

namespace tegula {

// Operand `at` and the next one; x [m, k] is operand 0.
struct QuantisedWeights {
  size_t at;
  bool packed;  // two in a byte
  int64_t m, n, k, groups;

  QuantisedWeights(const OpCall& c, size_t q)
      : at(q),
        packed(c.attrs->get_or<int64_t>("bits", 8) == 4),
        m(c.in[0].shape[0].bound()),
        n(c.in[q].shape[1].bound()),
        k(c.in[0].shape[1].bound()),
        groups(c.in[q + 1].shape[0].bound()) {}

  template <class S>
  S load(const RefArgs<S>& a, int64_t k_at, int64_t n_at) const {
    const int64_t byte = a.load_i(at, packed ? k_at / 2 : k_at, n_at);
    return S(static_cast<double>(packed ? (byte >> (k_at % 2 * 4) & 15) - 8 : byte));
  }
  // q has as many rows as x has columns.
  Status check(const OpCall& c) const {
    const int64_t rows = c.in[at].shape[0].bound();
    if (rows * (packed ? 2 : 1) == k) return {};
    return invalid_argument(
        cat(c.op->name, ": q has ", rows, " rows of ", packed ? 4 : 8, " bits for k=", k));
  }
};

// Sizes of y [m, n] from x, then what `more` says (", m"), q and scale.
Result<DimMap> quantised_dims(const OpCall& c, std::string_view more = "");
// The same of types: x is `x`, all but q else f32; y is f32.
Result<std::vector<DType>> quantised_types(const OpCall& c, DType x);

}  // namespace tegula
