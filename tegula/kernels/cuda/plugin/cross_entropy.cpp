#include "tegula/kernels/cuda/plugin/cross_entropy.h"

#include "tegula/kernels/cuda/cross_entropy_params.h"
#include "tegula/kernels/cuda/plugin/inner.h"

namespace tegula::cuda {

namespace {

TensorRef matrix(void* data, int64_t rows, int64_t columns, int64_t stride, DType dtype) {
  TensorRef t;
  t.data = data, t.dtype = dtype, t.rank = 2;
  t.shape[0] = rows, t.shape[1] = columns, t.stride[0] = stride, t.stride[1] = 1;
  return t;
}

Status product(const DeviceCall& call, const char* dims, const TensorRef& a, const TensorRef& b,
               const TensorRef& out, const Stream& to) {
  Attrs attrs;
  attrs.set("dims", std::string(dims));
  if (out.dtype != a.dtype) attrs.set("out", out.dtype);
  const TensorRef in[] = {a, b};
  return launch_inner(call, "dot", attrs, in, {&out, 1}, to);
}

// Steps of a row that is read twice for which a block has room, beside what is fixed.
int64_t most_slots_of(const Target& gpu) {
  return (gpu.smem_bytes - 1024) / kCrossEntropyStepBytes;
}

// The step from token to token; a single one has any.
int64_t step_of(const TensorRef& t) {
  const LoopParams l = loops_over({&t});
  return l.rank == 0 ? 0 : l.stride[0][l.rank - 1];
}

}  // namespace

int64_t cross_entropy_slots(const Target& gpu, int64_t v) {
  return std::min(most_slots_of(gpu), ceil_div(2 * v, int64_t{kCrossEntropyStepBytes}));
}

CrossEntropyRows::CrossEntropyRows(const DeviceCall& call, CrossEntropyPart part,
                                   const CrossEntropyShape& s) {
  const bool has_grads = part != CrossEntropyPart::kForward;
  const bool is_given = part == CrossEntropyPart::kBackward;
  p.logits = static_cast<unsigned short*>(call.workspace), p.row = s.row;
  p.v = static_cast<int>(s.v), p.ignore_index = call.attrs->get_or<int64_t>("ignore_index", -100);
  p.targets = call.in[2].data, p.target_stride = 1;
  if (has_grads) {
    const TensorRef &dlse = call.in[is_given ? 4 : 3], &dpicked = call.in[is_given ? 5 : 4];
    p.dlse = dlse.as<float>(), p.dlse_stride = step_of(dlse);
    p.dpicked = dpicked.as<float>(), p.dpicked_stride = step_of(dpicked);
  }
  const TensorRef& lse = is_given ? call.in[3] : call.out[0];
  p.lse = lse.as<float>(), p.lse_stride = is_given ? step_of(lse) : 1;
  if (!is_given) p.picked = call.out[1].as<float>(), p.picked_stride = 1;
}

void CrossEntropyRows::start_at(int64_t first, const TensorRef& targets) {
  p.targets = targets.as<char>() + first * size_bytes(targets.dtype);
  p.lse += first * p.lse_stride;
  if (p.picked != nullptr) p.picked += first * p.picked_stride;
  if (p.dlse != nullptr) p.dlse += first * p.dlse_stride, p.dpicked += first * p.dpicked_stride;
}

namespace {

// dW of one chunk's tokens; of several, the sum of their parts so far. `f`: add_part.
Status product_dw(const DeviceCall& call, const CrossEntropyShape& s, int64_t first,
                  const TensorRef& logits, const TensorRef& x, const TensorRef& dw,
                  const FunctionHandle& f, const Stream& to) {
  const char* dims = "n v, n d -> v d";
  if (!s.has_parts)
    return product(call, dims, logits, x, matrix(dw.data, s.v, s.d, s.d, dw.dtype), to);
  char* sum = static_cast<char*>(call.workspace) + s.logits_bytes();
  char* part = first == 0 ? sum : sum + s.part_bytes();
  TEGULA_TRY(product(call, dims, logits, x, matrix(part, s.v, s.d, s.d, DType::kF32), to));
  if (first == 0) return {};
  AddPartParams p{};
  p.sum = reinterpret_cast<float*>(sum), p.part = reinterpret_cast<float*>(part), p.n = s.v * s.d;
  if (first + s.chunk >= s.n) p.out = dw.as<unsigned short>();
  const Driver* d = TEGULA_TRY(Driver::get());
  return d->start(f, {{ceil_div(p.n, int64_t{1024}), 1, 1}, {256, 1, 1}, 0, true}, to,
                  "launching add_part", p);
}

}  // namespace

Status launch_cross_entropy(const DeviceCall& call, CrossEntropyPart part, const Stream& to) {
  const KernelQuery query{
      .attrs = call.attrs, .in = call.in, .out = call.out, .target = call.target};
  const CrossEntropyShape s = cross_entropy_shape(query, part);
  const bool has_grads = part != CrossEntropyPart::kForward;
  const DType type = call.in[0].dtype;
  const std::vector<std::string> defines = {
      cat("TEGULA_GRADS=", int{has_grads}),
      cat("TEGULA_GIVEN=", int{part == CrossEntropyPart::kBackward}),
      cat("TEGULA_ID64=", int{call.in[2].dtype == DType::kI64}),
      cat("TEGULA_F16=", int{type == DType::kF16})};
  const int64_t n_slots =
      part == CrossEntropyPart::kGrads ? cross_entropy_slots(*call.target, s.v) : 0;
  const FunctionHandle f = TEGULA_TRY(
      plain_kernel("cross_entropy.cu", "cross_entropy", defines,
                   static_cast<int>(most_slots_of(*call.target) * kCrossEntropyStepBytes)));
  const FunctionHandle add = TEGULA_TRY(plain_kernel("cross_entropy.cu", "add_part", defines));
  const Driver* d = TEGULA_TRY(Driver::get());
  const TensorRef w = matrix(call.in[1].data, s.v, s.d, s.d, type);
  for (int64_t first = 0; first < s.n; first += s.chunk) {
    const int64_t n = std::min(s.chunk, s.n - first);
    const TensorRef x = matrix(call.in[0].as<unsigned short>() + first * s.d, n, s.d, s.d, type);
    const TensorRef logits = matrix(call.workspace, n, s.v, s.row, type);
    TEGULA_TRY(product(call, "n d, v d -> n v", x, w, logits, to));
    CrossEntropyRows rows(call, part, s);
    rows.start_at(first, call.in[2]);
    rows.p.n_slots = static_cast<int>(n_slots);
    const Grid grid{
        {n, 1, 1}, {kCrossEntropyThreads, 1, 1}, n_slots * kCrossEntropyStepBytes, true};
    TEGULA_TRY(d->start(f, grid, to, "launching cross_entropy", rows.p));
    // As the op counts a token: 4 v + 2 of lse, and the gradient's 4 v.
    const int64_t of_lse = part == CrossEntropyPart::kBackward ? 0 : 4 * s.v + 2;
    const int64_t flops = n * (of_lse + (has_grads ? 4 * s.v : 0));
    call.counters->add(flops, flops);
    if (!has_grads) continue;
    const size_t dx = part == CrossEntropyPart::kGrads ? 2 : 0;
    TEGULA_TRY(product(call, "n v, v d -> n d", logits, w,
                       matrix(call.out[dx].as<unsigned short>() + first * s.d, n, s.d, s.d, type),
                       to));
    TEGULA_TRY(product_dw(call, s, first, logits, x, call.out[dx + 1], add, to));
  }
  return {};
}

}  // namespace tegula::cuda
