// reduce_sum over dims that others follow (bias and norm gradients), order: one ascending chain per
// output. Of a long column it goes into a total in f64 after every kSumPart rows and begins anew;
// others stay whole, so that sums over blocks of rows may go on from one another (blockwise).

#include "tegula/base/algorithm.h"
#include "tegula/kernels/kernel.h"
#include "tegula/tile/long_sum.h"

namespace tegula::kernel {

namespace {
// Neighbouring dims are reduced, all is dense: matrices [rows, columns] summed over rows.
bool supports(const KernelQuery& q) {
  const TensorRef& x = q.in[0];
  const auto& dims = q.attrs->ints("dims");
  return x.dtype == DType::kF32 && x.is_contiguous() && q.out[0].is_contiguous() && !dims.empty() &&
         dims.back() - dims.front() + 1 == static_cast<int64_t>(dims.size()) &&
         dims.back() + 1 < x.rank;
}

constexpr int64_t kTile = 256;

// Columns lie in blocks: a loop of constant length is one that the compiler makes vectors of.
constexpr int64_t kBlock = 16;

// Four rows at once, each sum still one ascending chain: sums are read and written a fourth as
// often.
void add_four(const float* __restrict row, int64_t stride, float* __restrict acc, int64_t n) {
  const float *a = row, *b = row + stride, *c = row + 2 * stride, *d = row + 3 * stride;
  for (int64_t i = 0; i + kBlock <= n; i += kBlock)
    for (const float* p : {a, b, c, d}) __builtin_prefetch(p + i + 4 * stride);
  for (; n >= kBlock; n -= kBlock, acc += kBlock) {
    for (int64_t i = 0; i < kBlock; ++i) acc[i] = acc[i] + a[i] + b[i] + c[i] + d[i];
    a += kBlock, b += kBlock, c += kBlock, d += kBlock;
  }
  for (int64_t i = 0; i < n; ++i) acc[i] = acc[i] + a[i] + b[i] + c[i] + d[i];
}

void add_to(double* __restrict total, float* __restrict acc, int64_t n) {
  for (int64_t b = 0; b < n; b += kBlock)
    for (int64_t i = 0; i < kBlock; ++i) {
      total[b + i] += static_cast<double>(acc[b + i]);
      acc[b + i] = 0;
    }
}

void launch(const KernelCall& c) {
  const TensorRef& x = c.in[0];
  const auto& dims = c.attrs->ints("dims");
  int64_t rows = 1, columns = 1;
  for (int64_t d : dims) rows *= x.shape[d];
  for (int64_t d = dims.back() + 1; d < x.rank; ++d) columns *= x.shape[d];
  if (columns == 0) return;
  const int64_t tile = c.pool->grain(kTile);
  const int64_t tiles = (columns + tile - 1) / tile, matrices = c.out[0].numel() / columns;
  c.pool->parallel_for(matrices * tiles, [&](int64_t task, int) {
    const int64_t matrix = task / tiles, begin = task % tiles * tile;
    const int64_t n = std::min(tile, columns - begin);
    const float* row = x.as<float>() + matrix * rows * columns + begin;
    float acc[kTile] = {};
    double total[kTile] = {};
    for (int64_t r = 0; r < rows;) {
      if (r > 0) add_to(total, acc, n);
      const int64_t end = rows > kLongColumn ? std::min(r + kSumPart, rows) : rows;
      for (; r + 4 <= end; r += 4, row += 4 * columns) add_four(row, columns, acc, n);
      for (; r < end; ++r, row += columns)
        for (int64_t i = 0; i < n; ++i) acc[i] += row[i];
    }
    float* out = c.out[0].as<float>() + matrix * columns + begin;
    for (int64_t i = 0; i < n; ++i)
      out[i] = static_cast<float>(total[i] + static_cast<double>(acc[i]));
    c.counters->add(rows * n, rows * n);
  });
}
}  // namespace

extern constinit const KernelDef reduce_sum_columns = {
    .name = "reduce_sum_columns",
    .op = "reduce_sum",
    .order = "chain",
    .doc = "an ascending chain per column, in parts where it is long; columns over threads",
    .supports = supports,
    .launch = launch,
};

}  // namespace tegula::kernel
