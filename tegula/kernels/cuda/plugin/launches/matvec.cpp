#include <bit>

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/matvec_params.h"
#include "tegula/kernels/cuda/plugin/inner.h"
#include "tegula/kernels/cuda/plugin/joinable.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
// What a block makes of c.
struct Tile {
  int64_t rows, columns;
  int64_t blocks(const MatmulShape& s) const {
    return ceil_div(s.n, columns) * ceil_div(s.m, rows);
  }
};

Tile tile_of(const MatmulShape& s, int64_t n_shards, int multiprocessors) {
  const auto power_of_2 = int64_t{1} << std::bit_width(static_cast<uint64_t>(s.m - 1));
  if (!s.b_mn_major) {
    // b is read once for so many rows. Shards of more would not find room in registers.
    const int64_t most = n_shards > 1 ? 2 : 16, times = ceil_div(s.m, most);
    const int64_t rows = s.m <= 4 ? std::min(most, power_of_2) : round_up(ceil_div(s.m, times), 2);
    return {rows, rows > 8 ? 16 : 8};
  }
  // The shape whose blocks load the multiprocessors least: a block takes about its columns times
  // its rows and what a step takes besides. b is read once for so many rows.
  Tile best{};
  int64_t least = 0;
  const int64_t most = n_shards > 1 ? 2 : 10;
  for (int64_t columns : {64, 32, 16})
    for (int64_t times = ceil_div(s.m, most); times <= ceil_div(s.m, int64_t{2}) + 1; ++times) {
      const int64_t share = ceil_div(s.m, times);
      const Tile t{share <= 6 ? share : round_up(share, 2), columns};
      const int64_t time = ceil_div(t.blocks(s), multiprocessors) * columns * (t.rows + 2);
      if (least == 0 || time < least) best = t, least = time;
    }
  return best;
}

Result<std::unique_ptr<Prepared>> prepare(const DeviceCall& call) {
  if (!are_aligned(call)) {
    auto inner = std::make_unique<PreparedLaunches>();
    TEGULA_TRY(launch_inner(call, "dot", *call.attrs, call.in, call.out, inner->list));
    return std::unique_ptr<Prepared>(std::move(inner));
  }
  const DType in = call.in[0].dtype, out = call.out[0].dtype;
  const DotCall d = TEGULA_TRY(parse_dot(call, in, out, 8));
  const MatmulShape& s = d.shape;
  if (s.m == 0 || s.n == 0) return std::unique_ptr<Prepared>(std::make_unique<PreparedLaunches>());
  MatvecParams p{};
  p.a = d.a->data, p.b = d.b->data, p.c = d.out->data;
  p.lda = d.lda, p.ldb = d.ldb, p.ldc = d.ldc;
  p.m = static_cast<int>(s.m), p.n = static_cast<int>(s.n), p.k = static_cast<int>(s.k);
  const Tile t = tile_of(s, d.c.k_shards, call.target->multiprocessors);
  const std::vector<std::string> defines = {cat("TEGULA_M=", t.rows),
                                            cat("TEGULA_SHARDS=", d.c.k_shards),
                                            cat("TEGULA_B_MN_MAJOR=", int{s.b_mn_major}),
                                            cat("TEGULA_COLUMNS=", t.columns),
                                            cat("TEGULA_IN16=", int{in != DType::kF32}),
                                            cat("TEGULA_OUT16=", int{out != DType::kF32}),
                                            cat("TEGULA_F16=", int{in == DType::kF16})};
  JoinableKernel k;
  k.one = TEGULA_TRY(plain_kernel("matvec.cu", "matvec", defines));
  k.joined = TEGULA_TRY(plain_kernel("matvec.cu", "matvecs", defines));
  k.n_threads = s.b_mn_major ? static_cast<int>(16 / size_bytes(in) * t.columns) : 128,
  k.what = "launching matvec";
  const int64_t flops = s.m * s.n * (2 * s.k + d.c.k_shards - 1);
  call.counters->add(flops, flops);
  return prepare_joinable(k, words_of(p), t.blocks(s));
}
}  // namespace

extern constinit const KernelLaunch matvec_launch{"matvec", prepare};

}  // namespace tegula::cuda
