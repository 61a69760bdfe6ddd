// Pooling beyond max_pool's op: averages, windows that reach over the end, adaptive windows.

#include "tegula/base/algorithm.h"
#include "tegula/ops/common/windows.h"
#include "tegula/ops/indexing.h"

namespace tegula {

namespace {
// Whether x is not [n, c, `rank` spatial dims]; says so.
bool reject(Var x, int rank, std::string_view what, Loc loc) {
  if (x.rank() == rank + 2) return false;
  if (!x.builder().failed())
    x.builder().fail(invalid_argument(
        cat(what, ": x is ", x.type(), ", must be [n, c, ", rank, " spatial dims]"), loc));
  return true;
}

// Where windows differ, something is written down for each.
constexpr int64_t kMostWindows = int64_t{1} << 24;
Error too_many(std::string_view what, int64_t n, Loc loc = Loc::current()) {
  return unsupported(
      cat(what, ": ", n, " windows of different sizes along a dim, at most ", kMostWindows), loc);
}

// By how many elements each window's mean divides along one dim.
std::vector<int64_t> divisors(const Window& w, int64_t size, int64_t hi, int64_t n,
                              bool count_include_pad) {
  const int64_t begin = count_include_pad ? -w.lo : 0, end = size + (count_include_pad ? hi : 0);
  std::vector<int64_t> out;
  for (int64_t o = 0; o < n; ++o) {
    int64_t count = 0;
    for (int64_t k = 0; k < w.kernel; ++k) count += w.at(o, k) >= begin && w.at(o, k) < end;
    out.push_back(std::max<int64_t>(count, 1));
  }
  return out;
}

// A vector that broadcasts along spatial dim i of `rank`.
Var along(Builder& b, std::vector<int64_t> values, size_t i, size_t rank, DType dtype, Loc loc) {
  Shape s = {static_cast<int64_t>(values.size())};
  for (size_t k = i + 1; k < rank; ++k) s.push_back(1);
  return reshape(cast(constant_ints(b, std::move(values), DType::kI64, loc), dtype, loc), s, loc);
}

// Sums of every window, kernel dims last, so that a window is a row.
Var window_sums(Var x, std::span<const Window> windows, std::span<const Dim> out, Loc loc) {
  const int rank = static_cast<int>(windows.size());
  std::vector<int64_t> order = {0, 1}, last;
  for (int i = 0; i < rank; ++i) order.push_back(2 + 2 * i), last.push_back(rank + 2 + i);
  for (int i = 0; i < rank; ++i) order.push_back(3 + 2 * i);
  return reduce_sum(permute(unfold_windows(x, windows, out), order, loc), last, false, loc);
}
}  // namespace

WindowOptions reaching_over(const Shape& x, std::span<const int64_t> kernel,
                            WindowOptions options) {
  const Attrs attrs = window_attrs(options, static_cast<int>(kernel.size()));
  OpCall call;
  call.op = &unfold_op, call.attrs = &attrs;
  const auto windows = windows_of(call, kernel);
  if (!windows.ok() || x.rank() != static_cast<int>(kernel.size()) + 2) return options;
  options.hi = attrs.ints("hi");
  for (size_t i = 0; i < kernel.size(); ++i) {
    const Window& w = (*windows)[i];
    const int64_t size = x[static_cast<int>(i) + 2].bound(),
                  room = size + w.lo + w.hi - w.reach() - 1;
    if (w.stride == 1 || room < 0 || room % w.stride == 0) continue;
    const int64_t next = (room / w.stride + 1) * w.stride;  // where one more window would begin
    if (next < size + w.lo) options.hi[i] += next - room;
  }
  return options;
}

Var avg_pool(Var x, std::vector<int64_t> kernel, const WindowOptions& options,
             const PoolOptions& pool, Loc loc) {
  Builder& b = x.builder();
  const auto rank = kernel.size();
  if (reject(x, static_cast<int>(rank), "avg_pool", loc)) return x;
  if (!is_float(x.dtype()))
    return b.fail(invalid_argument(
        cat("avg_pool: the mean of ", x.type(), " is no ", x.dtype(), ": cast it to a float first"),
        loc));
  const Attrs before = window_attrs(options, static_cast<int>(rank));
  const Attrs attrs = window_attrs(
      pool.ceil_mode ? reaching_over(x.shape(), kernel, options) : options, static_cast<int>(rank));
  OpCall call;
  call.op = &unfold_op, call.attrs = &attrs;
  const auto windows = windows_of(call, kernel);
  if (!windows.ok()) return b.fail(invalid_argument(windows.error().message, loc));
  std::vector<Dim> out;
  for (size_t i = 0; i < rank; ++i) {
    const auto n = (*windows)[i].count("avg_pool", x.dim(static_cast<int>(i) + 2));
    if (!n.ok()) return b.fail(invalid_argument(n.error().message, loc));
    out.push_back(*n);
  }
  const Var sums = window_sums(x, *windows, out, loc);
  double size = 1;
  Var count;  // along the dims where windows differ
  for (size_t i = 0; i < rank; ++i) {
    const Window& w = (*windows)[i];
    const Dim& extent = x.dim(static_cast<int>(i) + 2);
    const int64_t hi = before.ints("hi")[i];
    const bool differ = w.hi != hi || (!pool.count_include_pad && (w.lo > 0 || w.hi > 0));
    if (!differ) {
      size *= static_cast<double>(w.kernel);
      continue;
    }
    if (out[i].bound() > kMostWindows) return b.fail(too_many("avg_pool", out[i].bound(), loc));
    if (!extent.is_const())
      return b.fail(unsupported(
          cat("avg_pool: windows of different sizes over ", x.type(), ", whose extent is symbolic"),
          loc));
    const Var n = along(b, divisors(w, extent.bound(), hi, out[i].bound(), pool.count_include_pad),
                        i, rank, x.dtype(), loc);
    count = count.valid() ? mul(count, n, loc) : n;
  }
  const Var means = count.valid() ? div(sums, count, loc) : sums;
  return size == 1 ? means : mul(means, 1 / size, loc);
}

namespace {
// Each spatial dim i of x as [out[i], widest window]: the elements of every adaptive window, the
// last one again where a window is narrower, and for each window how many are its own.
struct Parts {
  Var x;
  std::vector<std::vector<int64_t>> counts;
  std::vector<int64_t> widest;
};
Result<Parts> adaptive_parts(Var x, const std::vector<int64_t>& out, std::string_view what) {
  Parts p{x, {}, {}};
  for (size_t i = 0; i < out.size(); ++i) {
    const int d = static_cast<int>(2 + 2 * i);
    const Dim size = x.dim(static_cast<int>(i) + 2);
    const int64_t n = size.bound(), m = out[i];
    if (!size.is_const() || n < 1 || m < 1)
      return invalid_argument(
          cat(what, ": ", m, " windows over dim ", i + 2, " of ", x.type(), ", a constant size"));
    if (saturating_mul(m, n / m + 2) > kMostWindows) return too_many(what, m);
    std::vector<int64_t> counts, ids;
    int64_t widest = 0;
    for (int64_t o = 0; o < m; ++o) {
      counts.push_back(((o + 1) * n + m - 1) / m - o * n / m);
      widest = std::max(widest, counts.back());
    }
    for (int64_t o = 0; o < m; ++o)
      for (int64_t k = 0; k < widest; ++k) ids.push_back(o * n / m + std::min(k, counts[o] - 1));
    const Var at = reshape(constant_ints(x.builder(), std::move(ids), DType::kI32), {m, widest});
    p.x = gather(p.x, at, d);
    p.counts.push_back(std::move(counts)), p.widest.push_back(widest);
  }
  return p;
}
// Whether windows of one size cut x exactly.
bool is_even(Var x, const std::vector<int64_t>& out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const Dim& size = x.dim(static_cast<int>(i) + 2);
    if (out[i] < 1 || !size.is_const() || size.bound() < out[i] || size.bound() % out[i] != 0)
      return false;
  }
  return true;
}
std::vector<int64_t> even_kernel(Var x, const std::vector<int64_t>& out) {
  std::vector<int64_t> kernel;
  for (size_t i = 0; i < out.size(); ++i)
    kernel.push_back(x.dim(static_cast<int>(i) + 2).bound() / out[i]);
  return kernel;
}
std::vector<int64_t> window_dims(size_t rank) {
  std::vector<int64_t> dims;
  for (size_t i = 0; i < rank; ++i) dims.push_back(static_cast<int64_t>(3 + 2 * i));
  return dims;
}
}  // namespace

Var adaptive_max_pool(Var x, const std::vector<int64_t>& out, Loc loc) {
  if (reject(x, static_cast<int>(out.size()), "adaptive_max_pool", loc)) return x;
  if (is_even(x, out)) {
    const auto kernel = even_kernel(x, out);
    return max_pool(x, kernel, {.stride = kernel}, {}, loc);
  }
  const auto p = adaptive_parts(x, out, "adaptive_max_pool");
  if (!p.ok()) return x.builder().fail(invalid_argument(p.error().message, loc));
  return reduce_max(p->x, window_dims(out.size()), false, loc);
}

Var adaptive_avg_pool(Var x, const std::vector<int64_t>& out, Loc loc) {
  if (reject(x, static_cast<int>(out.size()), "adaptive_avg_pool", loc)) return x;
  if (is_even(x, out)) {
    const auto kernel = even_kernel(x, out);
    return avg_pool(x, kernel, {.stride = kernel}, {}, loc);
  }
  Builder& b = x.builder();
  const auto p = adaptive_parts(x, out, "adaptive_avg_pool");
  if (!p.ok()) return b.fail(invalid_argument(p.error().message, loc));
  Var own = p->x, count;
  for (size_t i = 0; i < out.size(); ++i) {
    const Var n = along(b, p->counts[i], i, out.size(), x.dtype(), loc);
    count = count.valid() ? mul(count, n, loc) : n;
    // A value that is there again counts for nothing.
    std::vector<int64_t> mask;
    for (int64_t c : p->counts[i])
      for (int64_t k = 0; k < p->widest[i]; ++k) mask.push_back(k < c);
    if (std::count(mask.begin(), mask.end(), 0) == 0) continue;
    Shape s = {out[i], p->widest[i]};
    for (size_t k = 2 * (i + 1); k < 2 * out.size(); ++k) s.push_back(1);
    const Var kept = reshape(constant_ints(b, std::move(mask), DType::kI32, loc), s, loc);
    own = select(ne(kept, 0.0, loc), own, zeros_like(own, loc), loc);
  }
  return div(reduce_sum(own, window_dims(out.size()), false, loc), count, loc);
}

}  // namespace tegula
