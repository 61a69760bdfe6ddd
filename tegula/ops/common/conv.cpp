#include "tegula/ops/conv.h"

#include "tegula/ops/common/windows.h"

namespace tegula {

Var avg_pool(Var x, std::vector<int64_t> kernel, const WindowOptions& options, Loc loc) {
  Builder& b = x.builder();
  const int rank = static_cast<int>(kernel.size());
  if (x.rank() != rank + 2) {
    if (b.failed()) return b.fail(internal_error("poison"));
    return b.fail(invalid_argument(
        cat("avg_pool: x is ", x.type(), ", must be [n, c, ", rank, " spatial dims]"), loc));
  }
  const Attrs attrs = window_attrs(options, rank);
  const Type type = x.type();
  OpCall call;
  call.op = &unfold_op, call.attrs = &attrs;
  auto windows = windows_of(call, kernel);
  std::vector<Dim> out;
  for (int i = 0; i < rank && windows.ok(); ++i) {
    auto n = (*windows)[static_cast<size_t>(i)].count("avg_pool", type.shape[i + 2]);
    if (!n.ok()) return b.fail(std::move(n).error());
    out.push_back(*n);
  }
  if (!windows.ok()) return b.fail(std::move(windows).error());
  // Kernel dims last, so that a window is a row.
  std::vector<int64_t> order = {0, 1}, last;
  double size = 1;
  for (int i = 0; i < rank; ++i) order.push_back(2 + 2 * i), last.push_back(rank + 2 + i);
  for (int i = 0; i < rank; ++i) {
    order.push_back(3 + 2 * i);
    size *= static_cast<double>(kernel[static_cast<size_t>(i)]);
  }
  const Var rows = permute(unfold_windows(x, *windows, out), order, loc);
  return mul(reduce_sum(rows, last, false, loc), 1 / size, loc);
}

}  // namespace tegula
