// Tests what NVRTC makes of products with an epilogue: at every width of a tile neither spills nor
// products that wait for each other. Needs NVRTC, and no GPU.
#include "tegula/kernels/cuda/dot_fused_text.h"
#include "tegula/kernels/cuda/matmul.h"
#include "tegula/kernels/cuda/nvrtc.h"
#include "tegula/kernels/cuda/tile_text.h"
#include "tests/tile/harness.h"

namespace tegula::tile {
namespace {

constexpr DType B = DType::kBF16, F = DType::kF32;

// h and gelu(h).
Program gelu_kept() {
  Builder b(2, 0);
  const Reg h = b.load(b.input(B));
  b.store(b.output(B), b.unary(Op::kGelu, h));
  b.store(b.output(B), h);
  return b.finish().value();
}

// As autodiff writes it: with s = σ(x (c x² + d)), s + x (s - s s) (3 c x² + d).
Program gelu_gradient() {
  Builder b(2, 0);
  const Reg g = b.cast(b.load(b.input(B)), F), x = b.cast(b.load(b.input(B)), F);
  const Reg square = x * x, d = b.constant(1.5957691, F);
  const Reg s = b.unary(Op::kSigmoid, x * b.fma(square, b.constant(0.0713548, F), d));
  const Reg w = b.fma(square, b.constant(0.2140644, F), d);
  b.store(b.output(B), b.cast(g * b.fma(x * b.fma(-s, s, s), w, s), B));
  return b.finish().value();
}

// The same by tanh.
Program tanh_gradient() {
  Builder b(2, 0);
  const Reg g = b.cast(b.load(b.input(B)), F), x = b.cast(b.load(b.input(B)), F);
  const Reg square = x * x, t = tanh(x * (square * 0.0356774 + 0.7978846));
  const Reg slope = x * (1.0 - t * t) * (square * 0.1070322 + 0.7978846);
  b.store(b.output(B), b.cast(g * ((t + 1.0 + slope) * 0.5), B));
  return b.finish().value();
}

// The gradient of silu(x) y by x and y, and itself.
Program swiglu_gradient() {
  Builder b(2, 0);
  const Reg g = b.cast(b.load(b.input(B)), F), x = b.cast(b.load(b.input(B)), F);
  const Reg y = b.cast(b.load(b.input(B)), F), s = b.unary(Op::kSigmoid, x);
  const Reg silu = b.unary(Op::kSilu, x);
  b.store(b.output(B), b.cast(g * y * (s + x * (s * (1.0 - s))), B));
  b.store(b.output(B), b.cast(g * silu, B));
  b.store(b.output(B), b.cast(y * silu, B));
  return b.finish().value();
}

// dropout(product + bias) + residual, in f32.
Program dropout_residual() {
  Builder b(2, 0);
  const Reg y = b.load(b.input(B)) + b.load(b.input(B)), r = b.load(b.input(F));
  const Reg u = b.random_uniform(b.load(b.input(DType::kI64, Extent::kUniform)), 3, F);
  const Reg kept = b.binary(Op::kLt, u, b.constant(.9, F));
  b.store(b.output(F), b.select(kept, b.cast(y, F) * 1.1, b.constant(0, F)) + r);
  return b.finish().value();
}

TEST(EpilogueText, CompilesWithoutLoss) {
  const auto version = cuda::nvrtc_version();
  if (!version.ok()) GTEST_SKIP() << version.error().message;
  if (version->size() > 6) GTEST_SKIP() << "this NVRTC compiles for the host: " << *version;
  Target target;
  target.device = DeviceKind::kCuda, target.multiprocessors = 132;
  for (const Program& p :
       {gelu_kept(), gelu_gradient(), tanh_gradient(), swiglu_gradient(), dropout_residual()}) {
    const auto operand = [](const Operand& o) {
      const Shape s = o.extent == Extent::kFull ? Shape{8192, 3072} : Shape{};
      return contiguous_ref(nullptr, {o.dtype, s});
    };
    std::vector<TensorRef> in, out;
    for (const Operand& o : p.inputs) in.push_back(operand(o));
    for (const Operand& o : p.outputs) out.push_back(operand(o));
    auto call = cuda::tile_call(p, in, out, target);
    ASSERT_TRUE(call.ok()) << call.error().message;
    call->layout.access[0] = cuda::TileAccess::kGiven;
    for (const auto& [tile_n, n_stages] : {std::pair{128, 6}, {192, 4}, {256, 4}})
      for (const bool is_turned : {false, true}) {
        cuda::MatmulVariant v;
        v.tile_n = tile_n, v.n_stages = n_stages, v.is_fused = true;
        v.a_mn_major = is_turned, v.b_mn_major = !is_turned;
        std::vector<std::string> defines = v.defines();
        defines.insert(defines.end(), std::begin(cuda::kTileFlags), std::end(cuda::kTileFlags));
        const auto k =
            cuda::compile_text("epilogue.cu", cuda::dot_fused_text(p, *call), defines, "sm_90a");
        SCOPED_TRACE(cat(v.name(), "\n", to_text(p)));
        ASSERT_TRUE(k.ok()) << k.error().message;
        EXPECT_EQ(k->spill_bytes, 0) << k->log;
        EXPECT_FALSE(k->is_serialized) << k->log;
        EXPECT_NE(k->log.find(" 0 bytes stack frame"), std::string::npos) << k->log;
        EXPECT_LE(v.smem_bytes(), 227 << 10);
      }
  }
}

}  // namespace
}  // namespace tegula::tile
