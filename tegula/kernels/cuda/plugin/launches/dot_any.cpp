#include "tegula/base/round.h"
#include "tegula/kernels/cuda/dot_any_params.h"
#include "tegula/kernels/cuda/plugin/plain.h"

namespace tegula::cuda {

namespace {
const char* plain_type(DType t) {
  switch (t) {
    case DType::kF64:
      return "double";
    case DType::kI64:
      return "long long";
    case DType::kI32:
      return "int";
    case DType::kI8:
      return "signed char";
    case DType::kU8:
      return "unsigned char";
    default:
      return "float";
  }
}
bool has_16_bits(DType t) { return t == DType::kBF16 || t == DType::kF16; }

Status launch(const DeviceCall& call, const Stream& to) {
  const auto c = TEGULA_TRY(kernel::parse_contraction(*call.attrs, call.in, call.out));
  const TensorRef& out = call.out[0];
  if (out.numel() == 0) return {};
  using enum kernel::Operand;
  DotAnyParams p{};
  p.a = call.in[0].data, p.b = call.in[1].data, p.out = out.data;
  p.batch = loops_of(c.batch, {kA, kB, kOut}), p.m = loops_of(c.m, {kA, kB, kOut});
  p.n = loops_of(c.n, {kA, kB, kOut}), p.k = loops_of(c.k, {kA, kB, kOut});
  p.n_shards = static_cast<int>(c.k_shards);
  if (c.accumulates) {
    p.start = call.in[2].data;
    p.start_batch = loops_of(c.batch, {kBias}), p.start_m = loops_of(c.m, {kBias});
    p.start_n = loops_of(c.n, {kBias});
  }
  const DType in = call.in[0].dtype;
  const bool is_f16 = in == DType::kF16 || out.dtype == DType::kF16;
  const std::string sum = in == DType::kF64 ? "double"
                          : is_int(in)      ? "unsigned long long"
                                            : "float";
  const FunctionHandle f = TEGULA_TRY(plain_kernel(
      "dot_any.cu", "dot_any",
      {cat("TEGULA_IN16=", int{has_16_bits(in)}), cat("TEGULA_OUT16=", int{has_16_bits(out.dtype)}),
       cat("TEGULA_T=", plain_type(in)), cat("TEGULA_OUT_T=", plain_type(out.dtype)),
       cat("TEGULA_SUM=", sum), cat("TEGULA_F16=", int{is_f16})}));
  const Driver* d = TEGULA_TRY(Driver::get());
  constexpr int64_t kTile = 64;
  const Grid grid{{ceil_div(c.n.count, kTile), ceil_div(c.m.count, kTile),
                   std::min<int64_t>(c.batch.count, 65535)},
                  {256, 1, 1},
                  0,
                  true};
  const int64_t flops = out.numel() * (2 * c.k.count + c.k_shards - 1);
  call.counters->add(flops, flops);
  return d->start(f, grid, to, "launching dot_any", p);
}
}  // namespace

extern constinit const KernelLaunch dot_any_launch{"dot_any", prepare_by<launch>};

}  // namespace tegula::cuda
