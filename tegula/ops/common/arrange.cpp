#include "tegula/ops/arrange.h"

#include <numeric>

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {
Var reject(Var x, std::string message, Loc loc) {
  return x.builder().fail(invalid_argument(std::move(message), loc));
}

// An op that is written out part by part has so many at most.
constexpr int64_t kMostParts = 4096;
std::string too_many(std::string_view what, int64_t n) {
  return cat(what, ": ", n, " parts, at most ", kMostParts);
}

// `dim` counted from the front; -1 with an error if there is none.
int front(Var x, int64_t dim, std::string_view what, Loc loc) {
  const int64_t d = dim < 0 ? dim + x.rank() : dim;
  if (d >= 0 && d < x.rank()) return static_cast<int>(d);
  reject(x, cat(what, ": dim ", dim, " of ", x.type()), loc);
  return -1;
}
// The same of a dim whose size is known.
int known(Var x, int64_t dim, std::string_view what, Loc loc) {
  const int d = front(x, dim, what, loc);
  if (d < 0 || x.dim(d).is_const()) return d;
  reject(x, cat(what, ": dim ", d, " of ", x.type(), " has no constant size"), loc);
  return -1;
}

Var triangle(Var x, int64_t diagonal, bool lower, Loc loc) {
  const std::string_view what = lower ? "tril" : "triu";
  if (x.rank() < 2) return reject(x, cat(what, ": ", x.type(), " has less than 2 dims"), loc);
  Builder& b = x.builder();
  const Shape matrix = {x.dim(x.rank() - 2), x.dim(x.rank() - 1)};
  const Var row = iota(b, matrix, 0, DType::kI64, loc),
            column = iota(b, matrix, 1, DType::kI64, loc);
  const Var edge = add(row, static_cast<double>(diagonal), loc);
  const Var kept = lower ? le(column, edge, loc) : ge(column, edge, loc);
  return select(kept, x, zeros_like(x, loc), loc);
}
}  // namespace

Var roll(Var x, int64_t shift, int dim, Loc loc) {
  const int d = known(x, dim, "roll", loc);
  if (d < 0) return x;
  const int64_t n = x.dim(d).bound();
  const int64_t moved = n == 0 ? 0 : (shift % n + n) % n;
  if (moved == 0) return x;
  const Var parts[] = {slice(x, d, n - moved, moved, 1, loc), slice(x, d, 0, n - moved, 1, loc)};
  return concat(parts, d, loc);
}

Var flip(Var x, const std::vector<int64_t>& dims, Loc loc) {
  for (int64_t dim : dims) {
    const int d = known(x, dim, "flip", loc);
    if (d < 0) return x;
    if (const int64_t n = x.dim(d).bound(); n > 1) x = slice(x, d, n - 1, n, -1, loc);
  }
  return x;
}

Var tril(Var x, int64_t diagonal, Loc loc) { return triangle(x, diagonal, true, loc); }
Var triu(Var x, int64_t diagonal, Loc loc) { return triangle(x, diagonal, false, loc); }

// [n] -> [1, n] -> [count, n] -> [count·n], for every dim at once where the rank allows it.
Var repeat(Var x, const std::vector<int64_t>& counts, Loc loc) {
  if (x.is_poison()) return x;
  if (counts.size() > kMaxRank || static_cast<int>(counts.size()) < x.rank())
    return reject(x, cat("repeat: ", counts.size(), " counts for ", x.type()), loc);
  for (int64_t c : counts)
    if (c < 0) return reject(x, cat("repeat: a count is ", c), loc);
  while (x.rank() < static_cast<int>(counts.size())) x = unsqueeze(x, 0, loc);
  for (int d = 0; d < x.rank(); ++d) {
    const int64_t count = counts[static_cast<size_t>(d)];
    if (count == 1) continue;
    const auto size = mul(x.dim(d), count);
    if (!size.ok()) return reject(x, size.error().message, loc);
    Shape wide = x.shape(), flat = wide;
    flat[d] = *size;
    if (wide[d] == Dim(1)) {
      x = broadcast(x, flat, loc);
    } else if (x.rank() < kMaxRank) {
      wide.insert(d, count);
      x = reshape(broadcast(unsqueeze(x, d, loc), wide, loc), flat, loc);
    } else {
      if (count > kMostParts) return reject(x, too_many("repeat", count), loc);
      x = concat(std::vector<Var>(static_cast<size_t>(count), x), d, loc);
    }
  }
  return x;
}

Var stack(std::span<const Var> xs, int dim, Loc loc) {
  if (xs.empty()) return {};
  const int rank = xs[0].rank() + 1, d = dim < 0 ? dim + rank : dim;
  if (d < 0 || d >= rank || rank > kMaxRank)
    return reject(xs[0], cat("stack: dim ", dim, " of values like ", xs[0].type()), loc);
  std::vector<Var> parts;
  for (const Var& x : xs) {
    if (!(x.shape() == xs[0].shape()))
      return reject(x, cat("stack: a value is ", x.type(), ", the first ", xs[0].type()), loc);
    parts.push_back(unsqueeze(x, d, loc));
  }
  return concat(parts, d, loc);
}

std::vector<Var> split(Var x, const std::vector<int64_t>& sizes, int dim, Loc loc) {
  std::vector<Var> parts(sizes.size(), x);
  const int d = known(x, dim, "split", loc);
  if (d < 0) return parts;
  if (std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != x.dim(d).bound()) {
    reject(x, cat("split: sizes ", sizes, " do not add up to dim ", d, " of ", x.type()), loc);
    return parts;
  }
  int64_t start = 0;
  for (size_t k = 0; k < sizes.size(); start += sizes[k++])
    parts[k] = slice(x, d, start, sizes[k], 1, loc);
  return parts;
}
std::vector<Var> split(Var x, int64_t n, int dim, Loc loc) {
  const int d = known(x, dim, "split", loc);
  if (d >= 0 && n > kMostParts)
    reject(x, too_many("split", n), loc);
  else if (d >= 0 && (n < 1 || x.dim(d).bound() % n != 0))
    reject(x, cat("split: dim ", d, " of ", x.type(), " in ", n, " equal parts"), loc);
  if (x.is_poison())  // as many as there are names for
    return std::vector<Var>(static_cast<size_t>(std::clamp<int64_t>(n, 0, kMostParts)), x);
  return split(x, std::vector<int64_t>(static_cast<size_t>(n), x.dim(d).bound() / n), d, loc);
}

Var pad(Var x, int dim, int64_t lo, int64_t hi, PadMode mode, Loc loc) {
  const int d = known(x, dim, "pad", loc);
  if (d < 0) return x;
  const int64_t n = x.dim(d).bound();
  const int64_t most = mode == PadMode::kReflect ? n - 1 : n == 0 ? 0 : INT64_MAX;
  if (lo < 0 || hi < 0 || std::max(lo, hi) > most)
    return reject(x,
                  cat("pad: lo ", lo, " and hi ", hi, " of dim ", d, " of ", x.type(),
                      mode == PadMode::kReflect ? ", reflected: less than its size" : ""),
                  loc);
  const bool wraps = mode == PadMode::kWrap && n > 0;
  if (wraps && lo / n + hi / n > kMostParts)
    return reject(x, too_many("pad", lo / n + hi / n), loc);
  std::vector<Var> parts;
  const auto part = [&](int64_t start, int64_t size, int64_t step) {
    if (size > 0) parts.push_back(slice(x, d, start, size, step, loc));
  };
  const auto edge = [&](int64_t at, int64_t count) {
    Shape s = x.shape();
    s[d] = count;
    if (count > 0) parts.push_back(broadcast(slice(x, d, at, 1, 1, loc), s, loc));
  };
  const auto whole = [&](int64_t count) {
    parts.insert(parts.end(), static_cast<size_t>(count), x);
  };
  switch (mode) {
    case PadMode::kReflect:
      part(lo, lo, -1), whole(1), part(n - 2, hi, -1);
      break;
    case PadMode::kEdge:
      edge(0, lo), whole(1), edge(n - 1, hi);
      break;
    case PadMode::kWrap:
      if (wraps) part(n - lo % n, lo % n, 1), whole(lo / n + 1 + hi / n), part(0, hi % n, 1);
      break;
  }
  return parts.empty() ? x : concat(parts, d, loc);
}

}  // namespace tegula
