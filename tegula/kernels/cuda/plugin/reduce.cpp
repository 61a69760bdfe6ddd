#include "tegula/kernels/cuda/plugin/reduce.h"

#include "tegula/base/algorithm.h"
#include "tegula/kernels/cuda/describe/reduce_query.h"

namespace tegula::cuda {

namespace {
std::vector<std::string> defines_of(int op, DType t, int wide = 1) {
  return {cat("TEGULA_OP=", op), cat("TEGULA_WIDE=", wide), type_define(t)};
}

constexpr int kWide = 4;
constexpr int64_t kThreadsThatFill = 64 << 10;  // a GPU: fewer with more work each do not pay

// Whether four results are made at once, which p's loops then count as one.
bool widen(ReduceParams& p, DType t) {
  if (p.kept.count / kWide * p.n_parts < kThreadsThatFill) return false;
  SideBySide four(kWide);
  four.along(p.kept, {0, 1}).across(p.reduced, {0});
  four.at(p.x, size_bytes(t)).at(p.out, size_bytes(t)).at(p.parts, std::max(size_bytes(t), 4));
  if (four.is_possible()) four.apply();
  return four.is_possible();
}

}  // namespace

Status launch_chunks(ReduceParams p, int op, DType t, const Stream& to) {
  const int wide = widen(p, t) ? kWide : 1;
  const FunctionHandle f =
      TEGULA_TRY(plain_kernel("reduce.cu", "reduce_chunks", defines_of(op, t, wide)));
  const Driver* d = TEGULA_TRY(Driver::get());
  const int threads = 128;
  const int64_t blocks = (p.kept.count + threads - 1) / threads;
  return d->start(f, {{blocks, p.n_parts, 1}, {threads, 1, 1}, 0, true}, to,
                  "launching reduce_chunks", p);
}

Status launch_parts(const ReduceParams& p, int op, DType t, const Stream& to) {
  const FunctionHandle f = TEGULA_TRY(plain_kernel("reduce.cu", "reduce_parts", defines_of(op, t)));
  const Driver* d = TEGULA_TRY(Driver::get());
  const Grid grid{{(p.kept.count + 31) / 32, 1, 1}, {256, 1, 1}, 0, true};
  return d->start(f, grid, to, "launching reduce_parts", p);
}

Status launch_reduce(const DeviceCall& call, int op, const Stream& to) {
  const TensorRef &x = call.in[0], &out = call.out[0];
  const KernelQuery query{
      .attrs = call.attrs, .in = call.in, .out = call.out, .target = call.target};
  const ReduceSizes sizes = reduce_sizes(query);
  if (sizes.kept == 0) return {};
  const auto& dims = call.attrs->ints("dims");
  std::vector<int64_t> kept, kept_x, kept_out, reduced, reduced_x;
  // Kept dims stand in the result in their order; where it keeps reduced ones, with extent 1.
  const bool keeps_all = out.rank == x.rank;
  for (int d = 0, at = 0; d < x.rank; ++d) {
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) {
      reduced.push_back(x.shape[d]), reduced_x.push_back(x.stride[d]);
      at += int{keeps_all};
      continue;
    }
    kept.push_back(x.shape[d]), kept_x.push_back(x.stride[d]);
    kept_out.push_back(out.stride[at++]);
  }
  ReduceParams p{};
  p.x = x.data, p.out = out.data, p.parts = static_cast<float*>(call.workspace);
  p.kept = loops_of(kept, {kept_x, kept_out}), p.reduced = loops_of(reduced, {reduced_x});
  p.chunk = kReduceChunk, p.n_parts = static_cast<int>(sizes.n_parts());
  call.counters->add(sizes.kept * sizes.reduced, sizes.kept * sizes.reduced);
  TEGULA_TRY(launch_chunks(p, op, x.dtype, to));
  return p.n_parts == 1 ? Status{} : launch_parts(p, op, x.dtype, to);
}

}  // namespace tegula::cuda
