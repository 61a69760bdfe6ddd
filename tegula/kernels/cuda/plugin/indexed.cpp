#include "tegula/kernels/cuda/plugin/indexed.h"

#include <cstring>

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/describe/scatter_query.h"
#include "tegula/kernels/cuda/plugin/sort.h"

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

constexpr int kScatterThreads = 256, kScatterWide = 4;

// Where bits move, whatever they are of.
std::string bits_define(DType t) {
  return size_bytes(t) == 1   ? "TEGULA_T=unsigned char"
         : size_bytes(t) == 2 ? "TEGULA_T=unsigned short"
         : size_bytes(t) == 4 ? "TEGULA_T=unsigned"
                              : "TEGULA_T=unsigned long long";
}

// Whether p's loops count so many elements along `inner` as one from now on.
bool widen(IndexParams& p, int by, int64_t element_bytes) {
  SideBySide side(by);
  side.along(p.inner, {0, 1}).across(p.outer, {0, 1}).across(p.index, {1}).step(p.n_stride);
  side.at(p.x, element_bytes).at(p.y, element_bytes);
  if (side.is_possible()) side.apply();
  return side.is_possible();
}

std::string id_define(const TensorRef& ids) {
  return cat("TEGULA_ID64=", int{ids.dtype == DType::kI64});
}
std::string flat_define(const IndexParams& p) {
  return cat("TEGULA_FLAT=", int{std::max({p.outer.rank, p.index.rank, p.inner.rank}) <= 1});
}
}  // namespace

Status launch_gather(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                     const TensorRef& y, const Stream& to) {
  if (y.numel() == 0) return {};
  IndexParams p = params_of(kernel::GatherCall(*call.attrs, x, ids, y), x, ids, y);
  int64_t bytes = size_bytes(y.dtype);  // that a thread moves at once
  if (widen(p, static_cast<int>(16 / bytes), bytes)) bytes = 16;
  const FunctionHandle f = TEGULA_TRY(plain_kernel(
      "indexed.cu", "gather", {cat("TEGULA_BYTES=", bytes), id_define(ids), flat_define(p)}));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, grid_for(p.outer.count * p.index.count * p.inner.count, 256), to,
                  "launching gather", p);
}

namespace {
std::vector<std::string> put_defines(const IndexParams& p, const TensorRef& x,
                                     const TensorRef& ids) {
  return {"TEGULA_MODE=0", id_define(ids), flat_define(p), bits_define(x.dtype)};
}
}  // namespace

std::optional<RowsParams> PutLaunch::rows(size_t i) const {
  IndexParams p;
  std::memcpy(&p, call_words(i).data(), sizeof p);
  const auto has = [&](const char* d) {
    return std::find(defines.begin(), defines.end(), d) != defines.end();
  };
  constexpr int64_t kBytes = 2;  // of an element
  if (!has("TEGULA_T=unsigned short") || !has("TEGULA_ID64=0")) return {};
  if (p.outer.count != 1 || p.index.rank > 1 || p.inner.rank != 1) return {};
  const bool has_ids = p.index.rank == 1;
  if (p.inner.stride[0][0] != 1 || p.inner.stride[1][0] != 1) return {};
  if (has_ids && p.index.count > 1 && p.index.stride[2][0] != 1) return {};
  RowsParams r{};
  r.x = static_cast<char*>(p.x), r.y = static_cast<const char*>(p.y);
  r.ids = static_cast<const int*>(p.ids);
  r.x_step = p.n_stride * kBytes, r.y_step = has_ids ? p.index.stride[1][0] * kBytes : 0;
  constexpr int64_t kMost = int64_t{1} << 30;
  if (p.n > kMost || p.index.count > kMost || p.inner.count > kMost / kBytes) return {};
  r.n = static_cast<int>(p.n), r.n_ids = static_cast<int>(p.index.count);
  r.bytes = static_cast<int>(p.inner.count * kBytes);
  const auto all = reinterpret_cast<uintptr_t>(r.x) | reinterpret_cast<uintptr_t>(r.y) |
                   static_cast<uintptr_t>(r.x_step | r.y_step | r.bytes);
  if (all % 16 != 0) return {};
  return r;
}

int64_t put_blocks(const IndexParams& p, int n_threads) {
  return p.outer.count * p.index.count * ceil_div(p.inner.count, int64_t{n_threads} * kPutColumns);
}

Result<std::unique_ptr<Prepared>> prepare_put(const DeviceCall& call, const TensorRef& x,
                                              const TensorRef& ids, const TensorRef& y) {
  const IndexParams p = params_of(kernel::GatherCall(*call.attrs, x, ids, y), x, ids, y);
  const std::vector<std::string> defines = put_defines(p, x, ids);
  JoinableKernel k;
  k.one = TEGULA_TRY(plain_kernel("indexed.cu", "put", defines));
  k.joined = TEGULA_TRY(plain_kernel("indexed.cu", "puts", defines));
  k.n_threads = kScatterThreads, k.what = "launching put";
  return prepare_joinable(
      std::make_unique<PutLaunch>(k, p, put_blocks(p, kScatterThreads), defines));
}

Status launch_put(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                  const TensorRef& y, const Stream& to) {
  if (y.numel() == 0) return {};
  const IndexParams p = params_of(kernel::GatherCall(*call.attrs, x, ids, y), x, ids, y);
  const FunctionHandle f = TEGULA_TRY(plain_kernel("indexed.cu", "put", put_defines(p, x, ids)));
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, {{put_blocks(p, kScatterThreads), 1, 1}, {kScatterThreads, 1, 1}, 0, true}, to,
                  "launching put", p);
}

Status launch_scatter(const DeviceCall& call, const TensorRef& x, const TensorRef& ids,
                      const TensorRef& y, Meet meet, const Stream& to) {
  if (y.numel() == 0) return {};
  const kernel::GatherCall c(*call.attrs, x, ids, y);
  const ScatterSizes sizes(c, call.workspace);
  call.counters->claim(sizes.workspace_bytes());
  ScatterParams p{params_of(c, x, ids, y), sizes.ids.as<int>(), nullptr};
  const int wide = widen(p.call, kScatterWide, size_bytes(x.dtype)) ? kScatterWide : 1;
  std::vector<std::string> defines = {cat("TEGULA_MODE=", static_cast<int>(meet)), id_define(ids),
                                      cat("TEGULA_WIDE=", wide), flat_define(p.call)};
  if (x.dtype == DType::kBF16)
    defines.insert(defines.end(), {"TEGULA_BF16=1", "TEGULA_T=float"});
  else
    defines.push_back(type_define(x.dtype));
  const FunctionHandle rows = TEGULA_TRY(plain_kernel("indexed.cu", "row_ids", defines));
  const FunctionHandle f = TEGULA_TRY(plain_kernel("indexed.cu", "scatter", defines));
  const Driver* d = TEGULA_TRY(Driver::get());
  TEGULA_TRY(
      d->start(rows, grid_for(sizes.ids.numel(), kScatterThreads), to, "launching row_ids", p));
  void* copies = static_cast<char*>(call.workspace) + sizes.sort().values_bytes;
  const Sorted sorted = sorted_copy(sizes.ids, copies, sizes.sort().merges() % 2);
  TEGULA_TRY(launch_sort(sizes.ids, sorted, copies, false, to));
  p.ids = sorted.values.as<int>(), p.places = sorted.places.as<int>();
  const int64_t warps = sizes.ids.numel() * ceil_div(p.call.inner.count, int64_t{32});
  const Grid grid{
      {ceil_div(warps, int64_t{kScatterThreads / 32}), 1, 1}, {kScatterThreads, 1, 1}, 0, true};
  // Ids outside of x are priced, because only the data tells them apart.
  call.counters->add(y.numel(), y.numel());
  return d->start(f, grid, to, "launching scatter", p);
}

}  // namespace tegula::cuda
