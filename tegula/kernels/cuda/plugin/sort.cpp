#include "tegula/kernels/cuda/plugin/sort.h"

#include "tegula/base/algorithm.h"

namespace tegula::cuda {

namespace {
SortParams params_of(const TensorRef& from, const Sorted& to, bool is_descending) {
  const LineParams lines = lines_along(from.rank - 1, from, {&to.values, &to.places});
  SortParams p{};
  p.x = from.data, p.values = to.values.data, p.indices = to.places.as<int>();
  p.rows = lines.lines, p.n = lines.n, p.is_descending = int{is_descending};
  for (int t = 0; t < 3; ++t) p.step[t] = lines.step[t];
  return p;
}

// One for each pair of a step of what a block has in order; for two, of values of 8 bytes, which
// would spill else.
int sort_threads(int64_t n, DType t) {
  const int64_t most = kSortTile / (size_bytes(t) > 4 ? 4 : 2);
  int threads = 32;
  while (threads < most && 2 * threads < n) threads *= 2;
  return threads;
}
}  // namespace

Sorted sorted_copy(const TensorRef& x, void* copies, int which) {
  const SortSizes sizes(x);
  char* at = static_cast<char*>(copies) + which * sizes.copy_bytes();
  const auto contiguous = [&](DType t, char* data) {
    TensorRef r = x;
    r.data = data, r.dtype = t;
    int64_t stride = 1;
    for (int d = x.rank - 1; d >= 0; --d) r.stride[d] = stride, stride *= x.shape[d];
    return r;
  };
  return {contiguous(x.dtype, at), contiguous(DType::kI32, at + sizes.values_bytes)};
}

Status launch_sort(const TensorRef& x, const Sorted& result, void* copies, bool is_descending,
                   const Stream& to) {
  const SortSizes sizes(x);
  const int merges = sizes.merges();
  const auto target = [&](int pass) {
    return pass == merges ? result : sorted_copy(x, copies, pass % 2);
  };
  const Driver* d = TEGULA_TRY(Driver::get());
  const std::vector<std::string> type = {type_define(x.dtype), "--ftz=true"};
  const FunctionHandle tiles = TEGULA_TRY(plain_kernel("sort.cu", "sort_tiles", type));
  const SortParams first = params_of(x, target(0), is_descending);
  const int64_t blocks = sizes.elements / sizes.n * ceil_div(sizes.n, int64_t{kSortTile});
  const int threads = sort_threads(sizes.n, x.dtype);
  TEGULA_TRY(
      d->start(tiles, {{blocks, 1, 1}, {threads, 1, 1}, 0, true}, to, "launching sort", first));
  if (merges == 0) return {};
  const FunctionHandle merge = TEGULA_TRY(plain_kernel("sort.cu", "merge_runs", type));
  int64_t run = kSortTile;
  for (int pass = 1; pass <= merges; ++pass, run *= 2) {
    const Sorted from = target(pass - 1);
    SortParams p = params_of(from.values, target(pass), is_descending);
    p.places = from.places.as<int>(), p.run = run;
    TEGULA_TRY(d->start(merge, grid_for(sizes.elements, 256), to, "launching sort's merge", p));
  }
  return {};
}

}  // namespace tegula::cuda
