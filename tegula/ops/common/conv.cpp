#include "tegula/ops/conv.h"

#include "tegula/base/algorithm.h"
#include "tegula/ops/common/windows.h"

namespace tegula {

Var conv_bwd_data(Var y, Var w, const std::vector<Dim>& size, const ConvOptions& options, Loc loc) {
  Attrs attrs = window_attrs(options, std::max(y.rank() - 2, 1));
  attrs.set("groups", options.groups), attrs.set("size", size);
  return y.builder().emit(conv_bwd_data_op, std::move(attrs), {y, w}, loc);
}

Var conv_transpose(Var x, Var w, const ConvTransposeOptions& options, Loc loc) {
  Builder& b = x.builder();
  const auto rank = static_cast<size_t>(std::max(x.rank() - 2, 0));
  const auto reject = [&](Error e) { return b.fail(invalid_argument(e.message, loc)); };
  if (x.rank() < 3 || w.rank() != x.rank())
    return reject(invalid_argument(cat("conv_transpose: x is ", x.type(), " and w ", w.type(),
                                       ", both must have 3, 4 or 5 dims")));
  if (!options.extra.empty() && options.extra.size() != rank)
    return reject(invalid_argument(
        cat("conv_transpose: extra ", options.extra, " for ", rank, " spatial dims")));
  std::vector<int64_t> kernel;
  for (int d = 2; d < w.rank(); ++d) kernel.push_back(w.dim(d).bound());
  const Attrs attrs = window_attrs(options, static_cast<int>(rank));
  OpCall call;
  call.op = &conv_bwd_data_op, call.attrs = &attrs;
  const auto windows = windows_of(call, kernel);
  if (!windows.ok()) return reject(windows.error());
  std::vector<Dim> size;
  for (size_t i = 0; i < rank; ++i) {
    const Window& v = (*windows)[i];
    const int64_t extra = options.extra.empty() ? 0 : options.extra[i];
    if (extra < 0 || extra >= v.stride)
      return reject(invalid_argument(
          cat("conv_transpose: extra is ", extra, ", must be less than the stride ", v.stride)));
    const auto spread = mul(x.dim(static_cast<int>(i) + 2), v.stride);
    if (!spread.ok()) return reject(spread.error());
    const auto n = add(*spread, 1 - v.stride - v.lo - v.hi + v.reach() + extra);
    if (!n.ok()) return reject(n.error());
    size.push_back(*n);
  }
  return conv_bwd_data(x, w, size, options, loc);
}

}  // namespace tegula
