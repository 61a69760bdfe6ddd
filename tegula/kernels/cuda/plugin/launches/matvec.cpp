#include <bit>

#include "tegula/base/round.h"
#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/matvec_params.h"
#include "tegula/kernels/cuda/plugin/inner.h"
#include "tegula/kernels/cuda/plugin/joinable.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
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
  // Shards of several rows would not find room in registers.
  const int64_t most = d.c.k_shards > 1 ? 2 : 8;
  const int64_t rows = std::min(most, int64_t{1} << std::bit_width(static_cast<uint64_t>(s.m - 1)));
  const std::vector<std::string> defines = {cat("TEGULA_M=", rows),
                                            cat("TEGULA_SHARDS=", d.c.k_shards),
                                            cat("TEGULA_B_MN_MAJOR=", int{s.b_mn_major}),
                                            cat("TEGULA_IN16=", int{in != DType::kF32}),
                                            cat("TEGULA_OUT16=", int{out != DType::kF32}),
                                            cat("TEGULA_F16=", int{in == DType::kF16})};
  JoinableKernel k;
  k.one = TEGULA_TRY(plain_kernel("matvec.cu", "matvec", defines));
  k.joined = TEGULA_TRY(plain_kernel("matvec.cu", "matvecs", defines));
  k.n_threads = s.b_mn_major ? 256 : 128, k.what = "launching matvec";
  const int64_t flops = s.m * s.n * (2 * s.k + d.c.k_shards - 1);
  call.counters->add(flops, flops);
  const int64_t columns = s.b_mn_major ? 64 : 8;  // of a block
  return prepare_joinable(k, words_of(p), ceil_div(s.n, columns) * ceil_div(s.m, rows));
}
}  // namespace

extern constinit const KernelLaunch matvec_launch{"matvec", prepare};

}  // namespace tegula::cuda
