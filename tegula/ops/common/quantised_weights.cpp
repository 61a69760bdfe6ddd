#include "tegula/ops/common/quantised_weights.h"

namespace tegula {

Result<DimMap> quantised_dims(const OpCall& c, std::string_view more) {
  const int64_t bits = c.attrs->get_or<int64_t>("bits", 8);
  const size_t operands = more.empty() ? 3 : 4;
  if (c.in.size() != operands || (bits != 8 && bits != 4))
    return invalid_argument(cat(c.op->name, ": ", c.in.size(), " operands instead of ", operands,
                                ", or bits ", bits, ", not 8 or 4"));
  for (size_t k = operands - 2; k < operands; ++k)
    if (!c.shape(k).is_const())
      return unsupported(cat(c.op->name, ": operand ", k, " is ", c.in[k],
                             ": quantised weights have constant sizes"));
  DimMap m = TEGULA_TRY(
      solve_dims(c.op->name,
                 cat(bits == 8 ? "m (g e)" : "m (g e half)", more, ", (g e) n, g n -> m n"), c.in));
  for (Factor& f : m.factors)
    if (f.name != "m" && f.name != "n") f.whole = true;
  m.finish();
  return m;
}

Result<std::vector<DType>> quantised_types(const OpCall& c, DType x) {
  if (c.in.size() < 3) return invalid_argument(cat(c.op->name, ": got ", c.in.size(), " operands"));
  const DType f32 = DType::kF32;
  std::vector<DType> want(c.in.size(), f32);
  want[0] = x;
  want[want.size() - 2] = c.attrs->get_or<int64_t>("bits", 8) == 4 ? DType::kU8 : DType::kI8;
  std::string have, must;
  bool ok = true;
  for (size_t k = 0; k < want.size(); ++k) {
    ok = ok && c.in[k].dtype == want[k];
    have += cat(k > 0 ? ", " : "", c.in[k]), must += cat(k > 0 ? ", " : "", want[k]);
  }
  if (!ok) return invalid_argument(cat(c.op->name, ": operands are ", have, ", must be ", must));
  return std::vector<DType>{f32};
}

}  // namespace tegula
