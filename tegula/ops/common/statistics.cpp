#include <algorithm>

#include "tegula/ops/math.h"

namespace tegula {

Var reduce_var(Var x, std::vector<int64_t> dims, double correction, bool keep, Loc loc) {
  const Var apart = sub(x, reduce_mean(x, dims, true, loc), loc);
  const Var sum = reduce_sum(mul(apart, apart, loc), dims, keep, loc);
  if (x.builder().failed()) return sum;
  double count = 1;
  bool is_const = true;
  for (int64_t& d : dims) {
    d = d < 0 ? d + x.rank() : d;
    const Dim& size = x.dim(static_cast<int>(d));
    is_const &= size.is_const(), count *= static_cast<double>(size.bound());
  }
  // Nothing is left of a count up to the correction: NaN, not the variance of something else.
  if (is_const) return mul(sum, 1 / std::max(count - correction, 0.0), loc);
  Var n = constant(x.builder(), 1, x.dtype(), loc);
  for (int64_t d : dims) n = mul(n, extent(x, static_cast<int>(d), x.dtype(), loc), loc);
  return div(sum, max(sub(n, correction, loc), 0.0, loc), loc);
}

Var reduce_std(Var x, std::vector<int64_t> dims, double correction, bool keep, Loc loc) {
  return sqrt(reduce_var(x, std::move(dims), correction, keep, loc), loc);
}

}  // namespace tegula
