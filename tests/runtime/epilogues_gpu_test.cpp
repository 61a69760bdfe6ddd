// Products with an epilogue on a device: the bits of the product and the group apart. Skipped where
// there is no device of capability 9.0; CI runs it on the driver made for tests.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/ir/host_tensor.h"
#include "tegula/kernels/device.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"

namespace tegula {
namespace {

constexpr DType B = DType::kBF16, H = DType::kF16, F = DType::kF32;

class DeviceEpilogues : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device();
    if (!opened.ok()) GTEST_SKIP() << opened.error().message;
    device_ = *opened;
    if (device_->target().capability / 10 != 9) GTEST_SKIP() << "not of capability 9.0";
  }

  struct Ran {
    std::vector<std::vector<std::byte>> results;
    int64_t n_joined = 0, bytes = 0;
  };

  template <class Write>
  Ran run(const Write& write, const std::string& passes) {
    Ran ran;
    auto module = std::make_shared<Module>();
    Builder b(*module, "product");
    write(b);
    const FuncId f = b.finish_into_module().value();
    CompileOptions options;
    options.plan.target = device_->target(), options.passes.pass.mode = Mode::kFast;
    options.passes.passes = passes;
    const auto compiled = compile(module, f, options);
    EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
    if (!compiled.ok()) return ran;
    const Plan& plan = *compiled->plan;
    int64_t flops = 0;
    for (const Step& s : plan.steps) {
      ran.n_joined += s.op->name == "dot_fused", ran.bytes += s.bytes, flops += s.flops;
      EXPECT_TRUE(s.kernel) << s.op->name;
    }
    Rank rank(*device_);
    auto s = Session::create(compiled->plan, rank);
    EXPECT_TRUE(s.ok()) << s.error().to_string();
    if (!s.ok()) return ran;
    std::vector<HostTensor> in;
    in.reserve(plan.params.size());
    for (const auto& p : plan.params) {
      HostTensor& t = in.emplace_back(p.tensor.type);
      const auto seed = static_cast<double>(in.size());
      for (int64_t i = 0; i < t.numel(); ++i)
        t.put(i, std::sin(static_cast<double>(i) * 0.7 + seed));
      EXPECT_TRUE((*s)->bind_input(p.name, t.bytes.data()).ok());
    }
    const Status done = (*s)->run();
    EXPECT_TRUE(done.ok()) << done.error().to_string();
    EXPECT_EQ(rank.counters.math_flops.load(), flops);
    for (const auto& r : plan.results) {
      const auto y = (*s)->fetch(r.name);
      EXPECT_TRUE(y.ok()) << y.error().to_string();
      const auto* data = static_cast<const std::byte*>(y->data);
      ran.results.emplace_back(data, data + y->numel() * size_bytes(y->dtype));
    }
    return ran;
  }

  // The same bits with and without; n products take their group in, and fewer bytes move.
  template <class Write>
  void expect_same(const char* what, int64_t n, const Write& write) {
    SCOPED_TRACE(what);
    const Ran with = run(write, ""), apart = run(write, "-epilogues");
    EXPECT_EQ(with.n_joined, n);
    EXPECT_EQ(apart.n_joined, 0);
    if (n > 0) EXPECT_LT(with.bytes, apart.bytes);
    ASSERT_EQ(with.results.size(), apart.results.size());
    for (size_t r = 0; r < with.results.size(); ++r)
      EXPECT_TRUE(with.results[r] == apart.results[r]) << "result " << r;
  }

  Device* device_ = nullptr;
};

TEST_F(DeviceEpilogues, HaveTheBitsOfTheirParts) {
  // Tiles that end in the middle; one slab of k and several; either way round; each tile's width.
  for (const DType t : {B, H})
    for (const int64_t m : {128, 296})
      for (const int64_t n : {72, 200, 520})
        for (const int64_t k : {48, 200})
          for (const char* dims : {"m k, k n -> m n", "k m, n k -> m n"}) {
            const bool is_turned = dims[0] == 'k';
            SCOPED_TRACE(cat(dtype_name(t), " m ", m, " n ", n, " k ", k, " ", dims));
            expect_same("gelu", 1, [&](Builder& b) {
              const Var x = b.param("x", {t, is_turned ? Shape{k, m} : Shape{m, k}});
              const Var w = b.param("w", {t, is_turned ? Shape{n, k} : Shape{k, n}});
              b.result("y", gelu(dot(dims, x, w)));
            });
          }
}

TEST_F(DeviceEpilogues, OperandsLieInTheProductsRowsAndColumns) {
  const auto product = [](Builder& b) {
    const Var x = b.param("x", {B, {2, 100, 96}}), w = b.param("w", {B, {96, 136}});
    return dot("b s k, k n -> b s n", x, w);
  };
  const Shape shape = {2, 100, 136};
  expect_same("read by others too", 1, [&](Builder& b) {
    const Var h = product(b);
    b.result("h", h), b.result("y", gelu(h));
  });
  expect_same("a bias, a residual, a result of f32", 1, [&](Builder& b) {
    const Var bias = b.param("bias", {B, {136}}), r = b.param("r", {F, shape});
    b.result("y", cast(product(b) + broadcast(bias, shape), F) + r);
  });
  expect_same("a number a row", 1, [&](Builder& b) {
    const Var scale = b.param("scale", {F, {2, 100, 1}});
    b.result("y", cast(cast(product(b), F) * broadcast(scale, shape), B));
  });
  expect_same("a gradient through gelu, in place", 1, [&](Builder& b) {
    const Var h = b.param("h", {B, shape}), p = product(b);
    b.result("y", p * sigmoid(h * h)), b.result("z", p * h);
  });
  expect_same("where it stands", 1, [&](Builder& b) {
    const Var p = product(b);
    b.result("y", select(lt(random_uniform(b.param("seed", {DType::kI64, {}}), shape, 3, B), 0.5),
                         p, p * 0.0));
  });
  // Each batch's own rows and columns are not those of one product.
  expect_same("positions of a sequence", 0, [&](Builder& b) {
    const Var r = b.param("r", {B, {100, 136}});
    b.result("y", product(b) + broadcast(r, shape));
  });
}

// Two products read in one group: one takes it in. One that is read before the group stays.
TEST_F(DeviceEpilogues, OneProductAGroup) {
  expect_same("gate and up", 1, [&](Builder& b) {
    const Var x = b.param("x", {B, {200, 64}});
    const Var gate = dot("m k, k n -> m n", x, b.param("g", {B, {64, 128}}));
    const Var up = dot("m k, k n -> m n", x, b.param("u", {B, {64, 128}}));
    b.result("y", silu(gate) * up);
  });
}

}  // namespace
}  // namespace tegula
