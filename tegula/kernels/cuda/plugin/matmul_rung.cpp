#include "tegula/kernels/cuda/plugin/matmul_rung.h"

#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/matmul_rungs.h"

namespace tegula::cuda {

Status launch_rung(const DeviceCall& call, const Stream& to, std::string_view name) {
  const DotCall d = TEGULA_TRY(parse_dot(call, DType::kF32));
  for (const MatmulRung& rung : matmul_rungs()) {
    if (rung.name != name) continue;
    const MatmulRungKernel* k = TEGULA_TRY(loaded<MatmulRungKernel>(
        std::string(name), rung.source, rung.defines,
        [&](const std::string& cubin) { return MatmulRungKernel::load(rung, cubin); }));
    const int64_t flops = 2 * d.c.batch.count * d.shape.m * d.shape.n * d.shape.k;
    call.counters->add(flops, flops);
    for (int64_t i = 0; i < d.c.batch.count; ++i) {
      const MatmulCall m = matmul_call(d, i, to);
      TEGULA_TRY(k->launch(static_cast<const float*>(m.a.data), static_cast<const float*>(m.b.data),
                           static_cast<float*>(m.c.data), d.shape.m, d.shape.n, d.shape.k,
                           m.stream));
    }
    return {};
  }
  return internal_error(cat("there is no rung ", name));
}

}  // namespace tegula::cuda
