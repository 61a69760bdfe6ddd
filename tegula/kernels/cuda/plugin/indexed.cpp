#include "tegula/kernels/cuda/plugin/indexed.h"

#include "tegula/kernels/cpu/common/gather.h"
#include "tegula/kernels/cuda/plugin/joinable.h"

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

constexpr int kScatterThreads = 256, kScatterColumns = 4;

// Where bits move, whatever they are of.
std::string bits_define(DType t) {
  return size_bytes(t) == 1   ? "TEGULA_T=unsigned char"
         : size_bytes(t) == 2 ? "TEGULA_T=unsigned short"
         : size_bytes(t) == 4 ? "TEGULA_T=unsigned"
                              : "TEGULA_T=unsigned long long";
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

Result<std::unique_ptr<Prepared>> prepare_put(const DeviceCall& call, const TensorRef& x,
                                              const TensorRef& ids, const TensorRef& y) {
  const IndexParams p = params_of(kernel::GatherCall(*call.attrs, x, ids, y), x, ids, y);
  const std::vector<std::string> defines = {"TEGULA_MODE=0", id_define(ids), bits_define(x.dtype)};
  JoinableKernel k;
  k.one = TEGULA_TRY(plain_kernel("indexed.cu", "put", defines));
  k.joined = TEGULA_TRY(plain_kernel("indexed.cu", "puts", defines));
  k.n_threads = kScatterThreads, k.what = "launching put";
  return prepare_joinable(k, words_of(p),
                          p.outer.count * p.index.count *
                              ceil_div(p.inner.count, int64_t{kScatterThreads * kScatterColumns}));
}

Status launch_scatter(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                      const TensorRef& y, Meet meet, const Stream& to) {
  if (y.numel() == 0) return {};
  const IndexParams p = params_of(kernel::GatherCall(*call.attrs, x, ids, y), x, ids, y);
  const std::string type = meet == Meet::kSet ? bits_define(x.dtype) : type_define(x.dtype);
  std::vector<std::string> defines = {cat("TEGULA_MODE=", static_cast<int>(meet)), id_define(ids)};
  if (x.dtype == DType::kBF16 && meet != Meet::kSet)
    defines.insert(defines.end(), {"TEGULA_BF16=1", "TEGULA_T=float"});
  else
    defines.push_back(type);
  const FunctionHandle f = TEGULA_TRY(plain_kernel("indexed.cu", "scatter", defines));
  const Driver* d = TEGULA_TRY(Driver::get());
  const Grid grid{{p.outer.count * p.index.count,
                   ceil_div(p.inner.count, int64_t{kScatterThreads * kScatterColumns}), 1},
                  {kScatterThreads, 1, 1},
                  0,
                  true};
  // Ids outside of x are priced, because only the data tells them apart.
  if (meet != Meet::kSet) call.counters->add(y.numel(), y.numel());
  return d->start(f, grid, to, "launching scatter", p);
}

}  // namespace tegula::cuda
