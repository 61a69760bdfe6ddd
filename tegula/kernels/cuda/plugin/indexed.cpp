#include "tegula/kernels/cuda/plugin/indexed.h"

#include "tegula/kernels/cpu/common/gather.h"

namespace tegula::cuda {

namespace {
IndexParams params_of(const kernel::GatherCall& c, const TensorRef& x, const TensorRef& ids,
                      const TensorRef& y) {
  IndexParams p{};
  p.x = x.data, p.y = y.data, p.ids = ids.data;
  p.outer = loops_of(c.outer, {kernel::kA, kernel::kB, kernel::kOut});
  p.index = loops_of(c.index, {kernel::kA, kernel::kB, kernel::kOut});
  p.inner = loops_of(c.inner, {kernel::kA, kernel::kB, kernel::kOut});
  p.n = c.n, p.n_stride = c.n_stride;
  return p;
}

std::string id_define(const TensorRef& ids) {
  return cat("TEGULA_ID64=", int{ids.dtype == DType::kI64});
}
}  // namespace

Status launch_gather(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                     const TensorRef& y, const Stream& to) {
  if (y.numel() == 0) return {};
  const IndexParams p = params_of(kernel::GatherCall(*call.attrs, x, ids, y), x, ids, y);
  const FunctionHandle f = TEGULA_TRY(plain_kernel(
      "indexed.cu", "gather", {cat("TEGULA_BYTES=", size_bytes(y.dtype)), id_define(ids)}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, grid_for(y.numel(), 256), to, "launching gather", p);
}

Status launch_scatter(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                      const TensorRef& y, Meet meet, const Stream& to) {
  if (y.numel() == 0) return {};
  const IndexParams p = params_of(kernel::GatherCall(*call.attrs, x, ids, y), x, ids, y);
  constexpr int kThreads = 256, kColumns = 4;
  std::string type = type_define(x.dtype);
  if (meet == Meet::kSet)  // bits move
    type = size_bytes(x.dtype) == 1   ? "TEGULA_T=unsigned char"
           : size_bytes(x.dtype) == 2 ? "TEGULA_T=unsigned short"
           : size_bytes(x.dtype) == 4 ? "TEGULA_T=unsigned"
                                      : "TEGULA_T=unsigned long long";
  std::vector<std::string> defines = {cat("TEGULA_MODE=", static_cast<int>(meet)), id_define(ids)};
  if (x.dtype == DType::kBF16 && meet != Meet::kSet)
    defines.insert(defines.end(), {"TEGULA_BF16=1", "TEGULA_T=float"});
  else
    defines.push_back(type);
  const FunctionHandle f = TEGULA_TRY(plain_kernel("indexed.cu", "scatter", defines));
  const Driver* d = TEGULA_TRY(Driver::get());
  const Grid grid{
      {p.outer.count * p.index.count, ceil_div(p.inner.count, int64_t{kThreads * kColumns}), 1},
      {kThreads, 1, 1},
      0,
      true};
  // Ids outside of x are priced, because only the data tells them apart.
  if (meet != Meet::kSet) call.counters->add(y.numel(), y.numel());
  return d->start(f, grid, to, "launching scatter", p);
}

}  // namespace tegula::cuda
