// Few rows times a matrix: decoding. The bits of a row do not depend on the others.

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/describe/dot_query.h"

namespace tegula::cuda {

namespace {
constexpr int64_t kMostRows = 64, kMostShards = 8;

Status check(const KernelQuery& q) {
  TEGULA_TRY(check_device(q, 80));
  const DType in = q.in[0].dtype, out = q.out[0].dtype;
  if ((in != DType::kF32 && !is_narrow_float(in)) || (out != in && out != DType::kF32))
    return unsupported("dot: of bf16, f16 or f32, into the same or f32");
  const DotCall d = TEGULA_TRY(parse_dot(q, in, out, kMostShards));
  const int64_t vector = 16 / size_bytes(in);
  const MatmulShape& s = d.shape;
  if (d.c.batch.count != 1 || s.a_mn_major || s.m > kMostRows)
    return unsupported(cat("dot: at most ", kMostRows, " rows, that lie along k, of one batch"));
  if (s.k / d.c.k_shards % vector != 0 || d.lda % vector != 0 || d.ldb % vector != 0 ||
      (s.b_mn_major && s.n % vector != 0))
    return unsupported("dot: rows in whole pieces of 16 bytes");
  if (std::max(s.n, s.k) > (int64_t{1} << 30)) return unsupported("dot: extents past 2^30");
  for (const TensorRef* t : {d.a, d.b})
    if (reinterpret_cast<uintptr_t>(t->data) % 16 != 0)
      return unsupported("dot: operands aligned to 16 bytes");
  return {};
}
}  // namespace

extern constinit const KernelDef matvec{
    .name = "matvec",
    .op = "dot",
    .device = DeviceKind::kCuda,
    .order = "lanes",
    .doc = "few rows: the matrix is read once, by lanes or tensor cores; a tree joins their sums",
    .priority = 150,
    .supports = passes<check>,
    .check = check,
};

}  // namespace tegula::cuda
