// Means and variances: sums times the reciprocal of a count.
#include "tegula/base/algorithm.h"
#include "tegula/ops/common/normal_dims.h"

namespace tegula {

namespace {

// sum / max(n - correction, 0), with n the elements along `dims` of x. The factor is formed in f64
// and rounded once, of constant sizes as of symbolic ones: both have the same bits. Nothing is left
// of a count up to the correction: NaN, not the mean of something else.
Var per_count(Var sum, Var x, const std::vector<int64_t>& dims, double correction, Loc loc) {
  double count = 1;
  bool is_const = true;
  for (int64_t d : dims) {
    const Dim size = x.dim(static_cast<int>(d));
    is_const &= size.is_const(), count *= static_cast<double>(size.bound());
  }
  if (is_const) return mul(sum, 1 / std::max(count - correction, 0.0), loc);
  Var n = constant(x.builder(), 1, DType::kF64, loc);
  for (int64_t d : dims) n = mul(n, extent(x, static_cast<int>(d), DType::kF64, loc), loc);
  if (correction != 0) n = max(sub(n, correction, loc), 0.0, loc);
  return mul(sum, cast(reciprocal(n, loc), sum.dtype(), loc), loc);
}

bool reject_ints(std::string_view op, Var x, Loc loc) {
  if (x.is_poison() || is_float(x.dtype())) return x.is_poison();
  x.builder().fail(invalid_argument(
      cat(op, ": the mean of ", x.type(), " is no ", x.dtype(), ": cast it to a float first"),
      loc));
  return true;
}

}  // namespace

Var reduce_mean(Var x, std::vector<int64_t> dims, bool keep, Loc loc) {
  const auto normal = normal_dims("reduce_mean", x, std::move(dims), loc);
  if (!normal || reject_ints("reduce_mean", x, loc)) return x;
  return per_count(reduce_sum(x, *normal, keep, loc), x, *normal, 0, loc);
}

Var reduce_var(Var x, std::vector<int64_t> dims, double correction, bool keep, Loc loc) {
  const auto normal = normal_dims("reduce_var", x, std::move(dims), loc);
  if (!normal || reject_ints("reduce_var", x, loc)) return x;
  const Var apart = sub(x, reduce_mean(x, *normal, true, loc), loc);
  const Var sum = reduce_sum(mul(apart, apart, loc), *normal, keep, loc);
  return per_count(sum, x, *normal, correction, loc);
}

Var reduce_std(Var x, std::vector<int64_t> dims, double correction, bool keep, Loc loc) {
  return sqrt(reduce_var(x, std::move(dims), correction, keep, loc), loc);
}

}  // namespace tegula
