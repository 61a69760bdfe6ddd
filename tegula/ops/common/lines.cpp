#include "tegula/ops/common/lines.h"

namespace tegula {

Result<DimMap> line_dims(const OpCall& c, std::string_view spec) {
  const int64_t dim = c.attrs->i("dim");
  if (dim < 0 || dim >= c.shape(0).rank())
    return invalid_argument(cat(c.op->name, ": dim ", dim, " of ", c.in[0]));
  DimMap m = TEGULA_TRY(solve_dims(c.op->name, spec, c.in));
  m.factors[static_cast<size_t>(dim)].whole = true;
  m.finish();
  return m;
}

Var shifted(Var x, const Attrs& line, double value, bool back) {
  const auto dim = static_cast<int>(line.i("dim"));
  const Dim n = x.dim(dim);
  if (n.bound() == 0) return x;
  const auto rest = add(n, -1);
  if (!rest.ok()) return x.builder().fail(invalid_argument(rest.error().message));
  const bool up = line.flag("reverse") == back;
  return pad(slice(x, dim, up ? 0 : 1, *rest), dim, up ? 1 : 0, up ? 0 : 1, 0, value);
}

std::vector<Sample> line_samples(int n, double low, double high) {
  auto of = [&](DType t, const Shape& s, double lo, double hi) {
    return std::vector<SampleInput>(static_cast<size_t>(n), SampleInput{{t, s}, lo, hi});
  };
  auto along = [](int64_t dim, bool reverse) { return Attrs{{"dim", dim}, {"reverse", reverse}}; };
  const Shape s = {2, 4, 3};
  return {{"middle", of(DType::kF32, s, low, high), along(1, false)},
          {"last, reversed", of(DType::kF32, s, low, high), along(2, true)},
          {"many lines", of(DType::kF32, {5, 3, 70}, low, high), along(1, false)},
          {"integers", of(DType::kI32, {6}, -9, 9), along(0, false)},
          {"wide integers", of(DType::kI64, {3, 5}, -9, 9), along(1, true)},
          {"nothing", of(DType::kF32, {2, 0}, low, high), along(1, false)},
          {"one", of(DType::kF32, {2, 1}, low, high), along(1, true)},
          {"past the rank", of(DType::kF32, s, low, high), along(3, false), "dim 3"}};
}

}  // namespace tegula
