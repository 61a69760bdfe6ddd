#include <cstring>

#include "tegula/kernels/cuda/dot_fused_text.h"
#include "tegula/kernels/cuda/matmul.h"
#include "tegula/kernels/cuda/matmul_params.h"
#include "tegula/kernels/cuda/plugin/cross_entropy.h"

namespace tegula::cuda {

namespace {

// x wᵀ, whose tiles become exponentials.
Status product_of_exponentials(const Target& gpu, const MatmulCall& call,
                               const LogitsEpilogue& epilogue) {
  MatmulVariant v = choose_matmul(call.shape, gpu.multiprocessors);
  v.is_fused = true;
  const FunctionHandle f =
      TEGULA_TRY(plain_kernel("logits_sm90.cu", kFusedEntry, v.defines(), v.smem_bytes()));
  uint64_t words[sizeof(LogitsEpilogue) / sizeof(uint64_t)];
  static_assert(sizeof words == sizeof epilogue);
  std::memcpy(words, &epilogue, sizeof epilogue);
  return launch_fused(f, v, call, words);
}

Status product(const Target& gpu, const MatmulCall& call) {
  const MatmulVariant v = choose_matmul(call.shape, gpu.multiprocessors);
  const MatmulKernel* k = TEGULA_TRY(
      loaded<MatmulKernel>(v.name(), "matmul_sm90.cu", v.defines(),
                           [&](const std::string& cubin) { return MatmulKernel::load(v, cubin); }));
  return k->launch(call);
}

// What lies behind logits and parts of dW.
struct Scratch {
  float *sums, *shift, *total, *scale;
  unsigned short* scaled_x;
  int* redo;
  Scratch(const DeviceCall& call, const CrossEntropyShape& s) {
    const ScaledHeadSizes sizes(s);
    char* at = static_cast<char*>(call.workspace) + s.workspace_bytes();
    const auto take = [&](int64_t bytes) {
      void* const here = at;
      at += bytes;
      return here;
    };
    sums = static_cast<float*>(take(sizes.sums));
    scaled_x = static_cast<unsigned short*>(take(sizes.scaled_x));
    shift = static_cast<float*>(take(sizes.numbers));
    total = static_cast<float*>(take(sizes.numbers));
    scale = static_cast<float*>(take(sizes.numbers));
    redo = static_cast<int*>(take(256));
  }
};

Status launch(const DeviceCall& call, const Stream& to) {
  // A plan does not know where its operands begin.
  for (const TensorRef* t : {&call.in[0], &call.in[1], &call.out[2]})
    if (reinterpret_cast<uintptr_t>(t->data) % 16 != 0)
      return launch_cross_entropy(call, CrossEntropyPart::kGrads, to);
  const KernelQuery query{
      .attrs = call.attrs, .in = call.in, .out = call.out, .target = call.target};
  const CrossEntropyShape s = cross_entropy_shape(query, CrossEntropyPart::kGrads);
  const Scratch scratch(call, s);
  const Target& gpu = *call.target;
  const std::vector<std::string> defines = {
      "TEGULA_GRADS=1", "TEGULA_GIVEN=0", cat("TEGULA_ID64=", int{call.in[2].dtype == DType::kI64}),
      "TEGULA_F16=0", "TEGULA_SCALED=1"};
  const auto kernel = [&](const char* name, int64_t smem_bytes) {
    return plain_kernel("cross_entropy.cu", name, defines, static_cast<int>(smem_bytes));
  };
  const int64_t n_slots = cross_entropy_slots(gpu, s.v), ring = n_slots * kCrossEntropyStepBytes;
  const FunctionHandle pick = TEGULA_TRY(kernel("pick_targets", 0));
  const FunctionHandle scale = TEGULA_TRY(kernel("scale_rows", 0));
  const FunctionHandle redo =
      TEGULA_TRY(kernel("redo_rows", cross_entropy_slots(gpu, INT32_MAX) * kCrossEntropyStepBytes));
  const FunctionHandle add = TEGULA_TRY(kernel("add_part", 0));
  const Driver* d = TEGULA_TRY(Driver::get());

  const TensorRef w = matrix(call.in[1].data, s.v, s.d, s.d, DType::kBF16);
  for (int64_t first = 0; first < s.n; first += s.chunk) {
    const int64_t n = std::min(s.chunk, s.n - first);
    unsigned short* const x = call.in[0].as<unsigned short>() + first * s.d;
    CrossEntropyRows rows(call, CrossEntropyPart::kGrads, s);
    rows.start_at(first, call.in[2]);
    rows.p.n_slots = static_cast<int>(n_slots);
    ScaledRowsParams scaled{};
    scaled.x = x, scaled.w = w.as<unsigned short>(), scaled.scaled_x = scratch.scaled_x;
    scaled.shift = scratch.shift, scaled.total = scratch.total, scaled.scale = scratch.scale;
    scaled.sums = scratch.sums, scaled.n_sums = static_cast<int>(ScaledHeadSizes::n_sums(s));
    scaled.redo = scratch.redo, scaled.d = s.d, scaled.n = n;
    const Grid by_token{
        {ceil_div(32 * n, int64_t{kScaledRowsThreads}), 1, 1}, {kScaledRowsThreads, 1, 1}, 0, true};

    TEGULA_TRY(d->start(pick, by_token, to, "launching pick_targets", rows.p, scaled));
    MatmulCall logits;
    logits.shape = {n, s.v, s.d, false, false, false, false};
    logits.a = {x, s.d}, logits.b = {w.data, s.d}, logits.c = {rows.p.logits, s.row};
    logits.stream = to;
    TEGULA_TRY(product_of_exponentials(
        gpu, logits, {rows.p.logits, s.row, scratch.shift, scratch.sums, scaled.n_sums}));
    TEGULA_TRY(d->start(scale, by_token, to, "launching scale_rows", rows.p, scaled));
    // Where a row's sum is out of range.
    logits.guard = scratch.redo;
    TEGULA_TRY(product(gpu, logits));
    TEGULA_TRY(d->start(redo, {{n, 1, 1}, {kCrossEntropyThreads, 1, 1}, ring, true}, to,
                        "launching redo_rows", rows.p, scaled));

    MatmulCall dx;
    dx.shape = {n, s.d, s.v, false, true, false, false};
    dx.a = logits.c, dx.b = {w.data, s.d}, dx.row_scale = scratch.scale, dx.stream = to;
    dx.c = {call.out[2].as<unsigned short>() + first * s.d, s.d};
    TEGULA_TRY(product(gpu, dx));
    const TensorRef e = matrix(rows.p.logits, n, s.v, s.row, DType::kBF16);
    const TensorRef scaled_x = matrix(scratch.scaled_x, n, s.d, s.d, DType::kBF16);
    TEGULA_TRY(product_dw(call, s, first, e, scaled_x, call.out[3], add, to));
    // As the op prices a token's lse and gradient; and two products: dW's counts itself.
    const int64_t flops = n * (8 * s.v + 2) + 4 * n * s.v * s.d;
    call.counters->add(flops, flops);
  }
  return {};
}

}  // namespace

extern constinit const KernelLaunch linear_cross_entropy_grads_sm90_launch{
    "linear_cross_entropy_grads_sm90", prepare_by<launch>};

}  // namespace tegula::cuda
