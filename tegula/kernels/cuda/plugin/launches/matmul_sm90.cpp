#include "tegula/kernels/cuda/describe/dot_query.h"
#include "tegula/kernels/cuda/plugin/inner.h"
#include "tegula/kernels/cuda/plugin/reduce.h"

namespace tegula::cuda {

namespace {
// out[m, n] = the parts' sums, in order.
Status join(const DotCall& d, const MatmulCall& call, int n_splits, void* out, const Stream& to) {
  ReduceParams p{};
  p.x = call.c.data, p.out = out, p.chunk = n_splits, p.n_parts = 1;
  const int64_t extents[] = {d.shape.m, d.shape.n}, parts[] = {n_splits};
  p.kept = loops_of(extents, {{d.shape.n, 1}, {d.ldc, 1}});
  p.reduced = loops_of(parts, {{d.shape.m * d.shape.n}});
  return launch_chunks(p, 0, DType::kF32, to);
}

Status launch(const DeviceCall& call, const Stream& to) {
  if (!are_aligned(call)) return launch_inner(call, "dot", *call.attrs, call.in, call.out, to);
  const DotCall d = TEGULA_TRY(parse_dot(call, call.in[0].dtype, call.out[0].dtype));
  const MatmulVariant v = choose_matmul(d.shape, call.target->multiprocessors);
  const MatmulKernel* k = TEGULA_TRY(
      loaded<MatmulKernel>(v.name(), "matmul_sm90.cu", v.defines(),
                           [&](const std::string& cubin) { return MatmulKernel::load(v, cubin); }));
  const int64_t flops = 2 * d.c.batch.count * d.shape.m * d.shape.n * d.shape.k;
  call.counters->add(flops, flops);
  const int n_splits = choose_splits(d.shape, call.target->multiprocessors);
  for (int64_t i = 0; i < d.c.batch.count; ++i) {
    MatmulCall m = matmul_call(d, i, to);
    if (n_splits == 1) {
      TEGULA_TRY(k->launch(m));
      continue;
    }
    const MatmulOperand out = m.c;
    m.n_splits = n_splits, m.split_stride = d.shape.m * d.shape.n;
    m.c = {call.workspace, d.shape.n};
    TEGULA_TRY(k->launch(m));
    TEGULA_TRY(join(d, m, n_splits, out.data, to));
  }
  return {};
}
}  // namespace

extern constinit const KernelLaunch matmul_sm90_launch{"matmul_sm90", prepare_by<launch>};

}  // namespace tegula::cuda
