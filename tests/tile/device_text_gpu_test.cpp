// Tests what NVRTC makes of tile programs: those of training steps, at the sizes of real models and
// in every way of keeping rows, need neither spills nor local memory. Needs NVRTC, and no GPU.
#include <cstdlib>

#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/cuda/tile_text.h"
#include "tests/tile/harness.h"

namespace tegula::tile {
namespace {

constexpr DType F = DType::kF32, B = DType::kBF16;

TensorRef contiguous(DType t, std::vector<int64_t> shape) {
  TensorRef r;
  r.dtype = t, r.rank = static_cast<int>(shape.size());
  int64_t stride = 1;
  for (int d = r.rank - 1; d >= 0; --d) {
    r.shape[d] = shape[static_cast<size_t>(d)], r.stride[d] = stride;
    stride *= r.shape[d];
  }
  return r;
}
TensorRef transposed(DType t, int64_t rows, int64_t cols) {
  TensorRef r = contiguous(t, {rows, cols});
  r.stride[0] = 1, r.stride[1] = rows;
  return r;
}

// Operands of rows × n in the program's order; `of(dtype)` makes a full one.
template <class Full>
void expect_no_loss(const std::string& name, const Program& p, int64_t rows, int64_t n, Full of) {
  std::vector<TensorRef> in, out;
  const auto operand = [&](const Operand& o) {
    return o.extent == Extent::kFull     ? of(o.dtype, rows, n)
           : o.extent == Extent::kRow    ? contiguous(o.dtype, {rows, 1})
           : o.extent == Extent::kColumn ? contiguous(o.dtype, {1, n})
                                         : contiguous(o.dtype, {});
  };
  for (const Operand& o : p.inputs) in.push_back(operand(o));
  for (const Operand& o : p.outputs) out.push_back(operand(o));
  Target target;
  target.device = DeviceKind::kCuda, target.multiprocessors = 132;
  const auto call = cuda::tile_call(p, in, out, target);
  ASSERT_TRUE(call.ok()) << call.error().message;
  const std::vector<std::string> flags(std::begin(cuda::kTileFlags), std::end(cuda::kTileFlags));
  for (const char* arch : {"sm_80", "sm_90a"}) {
    const auto k = cuda::compile_text("tile_program.cu", cuda::tile_text(p, *call), flags, arch);
    const std::string what = cat(name, " of ", rows, " x ", n, ", ", arch);
    ASSERT_TRUE(k.ok()) << what << ": " << k.error().message;
    EXPECT_EQ(k->spill_bytes, 0) << what;
    EXPECT_NE(k->log.find(" 0 bytes stack frame"), std::string::npos) << what << "\n" << k->log;
    EXPECT_LE(k->registers * call->layout.n_threads, 65536) << what;
    EXPECT_LE(k->smem_bytes, 48 << 10) << what;
    EXPECT_GT(k->registers, 0) << what;
  }
}
const auto rows_along = [](DType t, int64_t rows, int64_t n) { return contiguous(t, {rows, n}); };
const auto rows_across = [](DType t, int64_t rows, int64_t n) { return transposed(t, rows, n); };

Program softmax() {
  Builder b(2, 1);
  const Reg x = b.load(b.input(F)), e = exp(x - b.reduce(Op::kReduceMax, x));
  b.store(b.output(F), e / b.reduce(Op::kReduceSum, e));
  return b.finish().value();
}

Program layer_norm() {
  Builder b(2, 1);
  const Reg x = b.cast(b.load(b.input(B)), F) + b.load(b.input(F)), w = b.load(b.input(F));
  const Reg d = x - b.reduce(Op::kReduceSum, x) * 1e-3;
  const Reg rstd = rsqrt(b.reduce(Op::kReduceSum, d * d) * 1e-3 + 1e-5);
  b.store(b.output(F), x);
  b.store(b.output(B), b.cast(d * rstd * w, B));
  b.store(b.output(F, Extent::kRow), rstd);
  return b.finish().value();
}

// n_columns: the gradient of the weight, of a bias, and of what was added before.
Program layer_norm_bwd(int n_columns) {
  Builder b(2, 1);
  const Reg dy = b.cast(b.load(b.input(B)), F), w = b.load(b.input(F)), x = b.load(b.input(F));
  const Reg rstd = b.load(b.input(F, Extent::kRow)), more = b.load(b.input(F));
  const Reg xh = (x - b.reduce(Op::kReduceSum, x) * 1e-3) * rstd, g = dy * w;
  const Reg a = b.reduce(Op::kReduceSum, g) * 1e-3, c = b.reduce(Op::kReduceSum, g * xh) * 1e-3;
  const Reg dx = more + (g - a - xh * c) * rstd;
  b.store(b.output(F), dx);
  b.store(b.output(F, n_columns > 0 ? Extent::kColumn : Extent::kFull), dy * xh);
  if (n_columns > 1) b.store(b.output(F, Extent::kColumn), dy);
  if (n_columns > 2) b.store(b.output(F, Extent::kColumn), dx);
  b.store(b.output(B), b.cast(dx, B));
  return b.finish().value();
}

// gelu's, in rows: also summed.
Program gelu_bwd_of_columns() {
  Builder b(2, 1);
  const Reg x = b.cast(b.load(b.input(B)), F), dy = b.cast(b.load(b.input(B)), F);
  const Reg t = tanh(x * (x * x * .0356774 + .797885));
  const Reg slope = (t + 1) * .5 + x * (1 - t * t) * (x * x * .107032 + .797885) * .5;
  const Reg dx = dy * slope;
  b.store(b.output(B), b.cast(dx, B));
  b.store(b.output(F, Extent::kColumn), dx);
  return b.finish().value();
}

Program adamw() {
  Builder b(2);
  const Reg g = b.load(b.input(F)), m = b.load(b.input(F)), v = b.load(b.input(F));
  const Reg w = b.load(b.input(F)), lr = b.load(b.input(F, Extent::kUniform));
  const Reg m2 = b.fma(g - m, b.constant(.1, F), m), v2 = b.fma(g * g - v, b.constant(.05, F), v);
  b.store(b.output(F), w - lr * (m2 / (sqrt(v2) + 1e-8) + w * .1));
  b.store(b.output(F), m2);
  b.store(b.output(F), v2);
  return b.finish().value();
}

Program gelu_dropout() {
  Builder b(2);
  const Reg x = b.unary(Op::kGelu, b.cast(b.load(b.input(B)), F));
  const Reg u = b.random_uniform(b.load(b.input(DType::kI64, Extent::kUniform)), 3);
  const Reg is_kept = b.binary(Op::kGe, u, b.constant(.1, F));
  b.store(b.output(B), b.cast(b.select(is_kept, x * (1 / .9), b.constant(0, F)), B));
  return b.finish().value();
}

Program all_functions(DType t) {
  Builder b(2);
  const Reg x = b.load(b.input(t)), y = b.load(b.input(t));
  for (int o = static_cast<int>(Op::kCopy); o <= static_cast<int>(Op::kErfc); ++o)
    b.store(b.output(t), b.unary(static_cast<Op>(o), x));
  for (int o = static_cast<int>(Op::kAdd); o <= static_cast<int>(Op::kCopysign); ++o)
    b.store(b.output(t), b.binary(static_cast<Op>(o), x, y));
  return b.finish().value();
}

TEST(TileText, CompilesWithoutLoss) {
  const auto version = cuda::nvrtc_version();
  if (!version.ok()) GTEST_SKIP() << version.error().message;
  // The emulator's minor version is a fingerprint.
  if (version->size() > 6) GTEST_SKIP() << "this NVRTC compiles for the host: " << *version;
  for (const int64_t n : {64, 768, 1000, 1024, 2048, 4096, 8192, 50257}) {
    expect_no_loss("softmax", softmax(), 8192, n, rows_along);
    expect_no_loss("layer_norm", layer_norm(), 8192, n, rows_along);
    expect_no_loss("layer_norm_bwd", layer_norm_bwd(0), 8192, n, rows_along);
    expect_no_loss("layer_norm_bwd of few", layer_norm_bwd(0), 3, n, rows_along);
    expect_no_loss("softmax across", softmax(), 768, n, rows_across);
  }
  for (const int64_t n : {64, 768, 1600, 2048, 8192})
    for (const int n_columns : {1, 2, 3})
      expect_no_loss(cat("layer_norm_bwd, columns ", n_columns), layer_norm_bwd(n_columns), 8192, n,
                     rows_along);
  for (const int64_t n : {768, 3072, 1001})
    expect_no_loss("gelu_bwd", gelu_bwd_of_columns(), 8192, n, rows_along);
  expect_no_loss("adamw", adamw(), 768, 3072, rows_along);
  expect_no_loss("gelu_dropout", gelu_dropout(), 8192, 3072, rows_along);
  // Positions of 64 bits.
  expect_no_loss("gelu_dropout", gelu_dropout(), 1 << 20, 4096, rows_along);
  expect_no_loss("softmax", softmax(), 2, int64_t{1} << 31, rows_along);
  expect_no_loss("functions", all_functions(F), 8192, 768, rows_along);
  expect_no_loss("functions", all_functions(B), 8192, 768, rows_along);
}

}  // namespace
}  // namespace tegula::tile
