// Convolution and pooling: decompositions have the bits of the references; derivatives and sizes
// against formulas written out.
#include "tegula/ops/conv.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/base/philox.h"
#include "tegula/ir/interpret.h"
#include "tegula/ir/reference.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/table.h"

namespace tegula {
namespace {

HostTensor random_tensor(const Type& type, uint64_t seed) {
  HostTensor t(type);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.put(i, 2 * philox_uniform(seed, 1, static_cast<uint64_t>(i)) - 1);
  return t;
}

// The sample's op, or its decomposition, as a function.
FuncId function_of(Module& m, const OpDef& op, const Sample& s, bool decompose) {
  Builder b(m, decompose ? "decomposed" : "op");
  std::vector<Var> in;
  std::vector<Type> types;
  for (const SampleInput& x : s.in) in.push_back(b.param(cat("x", in.size()), x.type));
  for (const SampleInput& x : s.in) types.push_back(x.type);
  std::vector<Var> out;
  if (decompose) {
    out = op.decompose(b, {&op, &s.attrs, types, {}, &m, {}}, in);
  } else {
    out = b.emit_n(op, s.attrs, in);
  }
  for (size_t r = 0; r < out.size(); ++r) b.result(cat("y", r), out[r]);
  auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  return *f;
}

TEST(Conv, DecompositionHasTheBitsOfTheReference) {
  for (const OpDef* op : {&conv_op, &conv_bwd_data_op, &conv_bwd_filter_op})
    for (const Sample& s : op->samples()) {
      if (!s.expect_error.empty()) continue;
      SCOPED_TRACE(cat(op->name, ": ", s.name));
      Module m;
      std::vector<HostTensor> in, out[2];
      for (const SampleInput& x : s.in) in.push_back(random_tensor(x.type, in.size()));
      for (bool decompose : {false, true}) {
        const FuncId f = function_of(m, *op, s, decompose);
        auto r = interpret(m, m[f], in, Arithmetic::kNaive);
        ASSERT_TRUE(r.ok()) << r.error().to_string();
        out[decompose] = *std::move(r);
      }
      EXPECT_EQ(out[0][0].type, out[1][0].type);
      EXPECT_EQ(out[0][0].values(), out[1][0].values());
    }
}

// y[o] = Σ_k x[s o + d k - p] w[k] written out in one dim, and the identity <y, conv(x, w)> seen
// from x and from w.
TEST(Conv, GradientsAreAdjoint) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF64, {2, 4, 9, 8}}),
            w = b.param("w", {DType::kF64, {6, 2, 3, 2}});
  ConvOptions o;
  o.stride = {2, 3}, o.lo = {1, 2}, o.hi = {2, 0}, o.dilation = {2, 1}, o.groups = 2;
  const Var y = conv(x, w, o);
  ASSERT_FALSE(b.failed()) << b.error().to_string();
  const Var ct = b.param("ct", y.type());
  const Var xs[] = {x, w};
  const auto g = pullback(b, std::span(&y, 1), std::span(&ct, 1), xs);
  auto inner = [](Var u, Var v) { return reduce_sum(u * v, {0, 1, 2, 3}); };
  b.result("y", inner(y, ct)), b.result("x", inner(x, g[0])), b.result("w", inner(w, g[1]));
  auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  std::vector<HostTensor> in;
  for (const Param& p : m[*f].params) in.push_back(random_tensor(m[*f].type(p.value), in.size()));
  auto out = interpret(m, m[*f], in);
  ASSERT_TRUE(out.ok()) << out.error().to_string();
  EXPECT_NEAR((*out)[1].at(0), (*out)[0].at(0), 1e-12);
  EXPECT_NEAR((*out)[2].at(0), (*out)[0].at(0), 1e-12);
}

TEST(Conv, OneDimWrittenOut) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF64, {1, 1, 7}}), w = b.param("w", {DType::kF64, {1, 1, 3}});
  ConvOptions o;
  o.stride = {2}, o.lo = {1}, o.hi = {2}, o.dilation = {2};
  b.result("y", conv(x, w, o));
  auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok());
  const std::vector<double> xv = {1, 2, 3, 4, 5, 6, 7}, wv = {100, 10, 1};
  const HostTensor in[] = {HostTensor({DType::kF64, {1, 1, 7}}, xv),
                           HostTensor({DType::kF64, {1, 1, 3}}, wv)};
  auto out = interpret(m, m[*f], in);
  ASSERT_TRUE(out.ok());
  // Windows at -1, 1, 3, with elements two apart.
  EXPECT_EQ((*out)[0].values(), (std::vector<double>{24, 246, 460}));
}

TEST(Pool, ValuesPlacesAndGradients) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF64, {1, 1, 4, 4}});
  WindowOptions o;
  o.stride = {2, 2};
  const Var most = max_pool(x, {2, 2}, o), mean = avg_pool(x, {2, 2}, o);
  const Var loss = reduce_sum(most * most, {0, 1, 2, 3}) + reduce_sum(mean, {0, 1, 2, 3});
  b.result("max", most), b.result("mean", mean);
  b.result("g", grad(loss, std::span(&x, 1))[0]);
  auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  const std::vector<double> v = {1, 5, 2, 2, 3, 4, 2, 2, 0, -1, 9, 8, -2, -3, 7, 6};
  const HostTensor in({DType::kF64, {1, 1, 4, 4}}, v);
  auto out = interpret(m, m[*f], std::span(&in, 1));
  ASSERT_TRUE(out.ok()) << out.error().to_string();
  EXPECT_EQ((*out)[0].values(), (std::vector<double>{5, 2, 0, 9}));
  EXPECT_EQ((*out)[1].values(), (std::vector<double>{3.25, 2, -1.5, 7.5}));
  // 2 max at the first of equals, plus a quarter everywhere.
  std::vector<double> g(16, 0.25);
  g[1] += 10, g[2] += 4, g[8] += 0, g[10] += 18;
  EXPECT_EQ((*out)[2].values(), g);
}

// Padding is no element of a window, NaN is the largest.
TEST(Pool, PaddingAndNan) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF64, {1, 1, 5}});
  WindowOptions o;
  o.lo = {1}, o.hi = {1}, o.stride = {2};
  b.result("y", max_pool(x, {3}, o));
  auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  const std::vector<double> v = {-5, -7, -6, std::nan(""), -1};
  const HostTensor in({DType::kF64, {1, 1, 5}}, v);
  auto out = interpret(m, m[*f], std::span(&in, 1));
  ASSERT_TRUE(out.ok());
  EXPECT_EQ((*out)[0].at(0), -5);
  EXPECT_TRUE(std::isnan((*out)[0].at(1)));
  EXPECT_TRUE(std::isnan((*out)[0].at(2)));
}

TEST(Pool, AverageKernelMisfit) {
  Module m;
  Builder b(m, "f");
  b.result("y", avg_pool(b.param("x", {DType::kF64, {1, 1, 2}}), {3}));
  auto f = b.finish_into_module();
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.error().message.find("avg_pool: a kernel that spans 3 does not fit 2"),
            std::string::npos)
      << f.error().message;
}

}  // namespace
}  // namespace tegula
