#include "tegula/kernels/cuda/matmul_rungs.h"

#include <climits>

#include "tegula/base/algorithm.h"
#include "tegula/base/round.h"
#include "tegula/kernels/cuda/matmul_params.h"

namespace tegula::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kL = 128;  // outputs along each side of a block, from v1_5 on

MatmulRung v3(std::string_view name, int coalesced, int conflict_free, int double_buffered) {
  return {name,
          "matmul_v3.cu",
          "matmul_v3",
          kL,
          kL,
          {cat("TEGULA_COALESCED=", coalesced), cat("TEGULA_CONFLICT_FREE=", conflict_free),
           cat("TEGULA_DOUBLE_BUFFERED=", double_buffered)}};
}

}  // namespace

std::span<const MatmulRung> matmul_rungs() {
  static const std::vector<MatmulRung> rungs = {{"v1", "matmul_v1.cu", "matmul_v1", 8, 32, {}},
                                                {"v1_5", "matmul_v2.cu", "matmul_v1_5", kL, kL, {}},
                                                {"v2", "matmul_v2.cu", "matmul_v2", kL, kL, {}},
                                                v3("v3", 0, 0, 0),
                                                v3("v3_coalesced", 1, 0, 0),
                                                v3("v3_conflict_free", 1, 1, 0),
                                                v3("v3_double_buffered", 1, 1, 1)};
  return rungs;
}

Status check_matmul_rung(int64_t m, int64_t n, int64_t k) {
  if (std::min({m, n, k}) < 1)
    return invalid_argument(cat("matmul of an empty tensor: m ", m, ", n ", n, ", k ", k));
  // Grids have at most 65535 rows of blocks; v3 indexes with 32 bits, extents are ints everywhere.
  if (std::max({m, n, k}) > INT_MAX / 2 || ceil_div(m, 8) > 65535 ||
      std::max(m * k, k * n) > int64_t{UINT_MAX})
    return unsupported(
        cat("the f32 rungs take m up to 524,280 and operands below 2^32 elements, "
            "not m ",
            m, ", n ", n, ", k ", k));
  return {};
}

Result<MatmulRungKernel> MatmulRungKernel::load(const MatmulRung& rung, const std::string& cubin) {
  Module module = TEGULA_TRY(Module::load(cubin));
  FunctionHandle f = TEGULA_TRY(module.function(std::string(rung.kernel).c_str(), 0));
  return MatmulRungKernel(rung, std::move(module), f);
}

Status MatmulRungKernel::launch(const float* a, const float* b, float* c, int64_t m, int64_t n,
                                int64_t k, const Stream& stream) const {
  TEGULA_TRY(check_matmul_rung(m, n, k));
  MatmulRungParams p{a, b, c, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k)};
  const Driver* d = TEGULA_TRY(Driver::get());
  const Grid grid{{ceil_div(n, rung_->tile_n), ceil_div(m, rung_->tile_m), 1}, {kThreads, 1, 1}};
  return d->start(function_, grid, stream, "launching a matmul rung", p);
}

}  // namespace tegula::cuda
