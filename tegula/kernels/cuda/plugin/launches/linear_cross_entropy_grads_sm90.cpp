#include "tegula/kernels/cuda/matmul.h"
#include "tegula/kernels/cuda/plugin/cross_entropy.h"

namespace tegula::cuda {

namespace {

Status product(const MatmulVariant& v, const MatmulCall& call) {
  const MatmulKernel* k = TEGULA_TRY(
      loaded<MatmulKernel>(v.name(), "matmul_sm90.cu", v.defines(),
                           [&](const std::string& cubin) { return MatmulKernel::load(v, cubin); }));
  return k->launch(call);
}

// The memory behind logits and parts of dW.
struct Scratch {
  float *sum_of_dw, *sums, *shift, *total, *scale;
  unsigned short* scaled_x;
  int* redo;
  Scratch(const DeviceCall& call, const CrossEntropyShape& s) {
    const ScaledHeadSizes sizes(s);
    sum_of_dw = reinterpret_cast<float*>(static_cast<char*>(call.workspace) + s.logits_bytes());
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
  for (const TensorRef* t : {&call.in[0], &call.in[1], &call.out[2], &call.out[3]})
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
  const Driver* d = TEGULA_TRY(Driver::get());

  void* const w = call.in[1].data;
  for (int64_t first = 0; first < s.n; first += s.chunk) {
    const int64_t n = std::min(s.chunk, s.n - first);
    unsigned short* const x = call.in[0].as<unsigned short>() + first * s.d;
    CrossEntropyRows rows(call, CrossEntropyPart::kGrads, s);
    rows.start_at(first, call.in[2]);
    rows.p.n_slots = static_cast<int>(n_slots);
    ScaledRowsParams scaled{};
    scaled.x = x, scaled.w = static_cast<unsigned short*>(w), scaled.scaled_x = scratch.scaled_x;
    scaled.shift = scratch.shift, scaled.total = scratch.total, scaled.scale = scratch.scale;
    scaled.sums = scratch.sums, scaled.redo = scratch.redo, scaled.d = s.d, scaled.n = n;
    const Grid by_token{
        {ceil_div(32 * n, int64_t{kScaledRowsThreads}), 1, 1}, {kScaledRowsThreads, 1, 1}, 0, true};

    TEGULA_TRY(d->start(pick, by_token, to, "launching pick_targets", rows.p, scaled));
    MatmulCall logits;
    logits.shape = {n, s.v, s.d, false, false, false, false};
    logits.a = {x, s.d}, logits.b = {w, s.d}, logits.c = {rows.p.logits, s.row};
    logits.stream = to;
    logits.shift = scratch.shift, logits.sums = scratch.sums;
    MatmulVariant of_exp;
    of_exp.b_mn_major = false, of_exp.is_exp = true;
    of_exp.tile_n = ScaledHeadSizes::kColumns;
    scaled.n_sums = static_cast<int>(ScaledHeadSizes::n_sums(s));
    TEGULA_TRY(product(of_exp, logits));
    TEGULA_TRY(d->start(scale, by_token, to, "launching scale_rows", rows.p, scaled));
    // Where a row's sum is out of range.
    logits.guard = scratch.redo, logits.total = scratch.total;
    TEGULA_TRY(product(choose_matmul(logits.shape, gpu.multiprocessors), logits));
    TEGULA_TRY(d->start(redo,
                        {{std::min(n, 2 * int64_t{gpu.multiprocessors}), 1, 1},
                         {kCrossEntropyThreads, 1, 1},
                         ring,
                         true},
                        to, "launching redo_rows", rows.p, scaled));

    MatmulCall dx;
    dx.shape = {n, s.d, s.v, false, true, false, false};
    dx.a = logits.c, dx.b = {w, s.d}, dx.row_scale = scratch.scale, dx.stream = to;
    dx.c = {call.out[2].as<unsigned short>() + first * s.d, s.d};
    TEGULA_TRY(product(choose_matmul(dx.shape, gpu.multiprocessors), dx));

    // Over several chunks dW adds up in f32, and the last rounds it.
    MatmulCall dw;
    dw.shape = {s.v, s.d, n, true, true, s.has_parts, false};
    dw.a = logits.c, dw.b = {scratch.scaled_x, s.d}, dw.stream = to;
    dw.c = {s.has_parts ? scratch.sum_of_dw : call.out[3].data, s.d};
    dw.adds = s.has_parts && first > 0;
    if (dw.adds && first + n == s.n) dw.c16 = call.out[3].data;
    TEGULA_TRY(product(choose_matmul(dw.shape, gpu.multiprocessors), dw));
  }
  // As the op prices a token's lse and gradient.
  const int64_t flops = s.n * (8 * s.v + 2) + 6 * s.n * s.v * s.d;
  call.counters->add(flops, flops);
  return {};
}

}  // namespace

extern constinit const KernelLaunch linear_cross_entropy_grads_sm90_launch{
    "linear_cross_entropy_grads_sm90", prepare_by<launch>};

}  // namespace tegula::cuda
