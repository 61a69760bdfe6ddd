#include "tegula/runtime/finite_hunt.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/ir/builder.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/session.h"

namespace tegula {
namespace {

// y = f(x, w) in f32, four numbers each, run on these.
template <class F>
NotFinite hunt(F&& f, std::vector<float> x, std::vector<float> w) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "f");
  const Type four{DType::kF32, {4}};
  const Var in = b.param("x", four), weight = b.weight("layers.0.w", four);
  b.result("y", f(b, in, weight));
  const auto function = b.finish_into_module();
  EXPECT_TRUE(function.ok()) << function.error().to_string();
  auto plan = make_plan(module, *function, {.target = Target::this_cpu(1)});
  EXPECT_TRUE(plan.ok()) << plan.error().to_string();
  Rank rank(1);
  auto session = std::move(Session::create(std::make_shared<Plan>(std::move(*plan)), rank)).value();
  session->bind(0, x.data()), session->bind(1, w.data());
  EXPECT_TRUE(session->run().ok());
  const FiniteHunt found(*session);
  EXPECT_TRUE(session->run().ok());
  return found.found();
}

const std::vector<float> kOnes = {1, 1, 1, 1};

TEST(FiniteHunt, FindsNothingWhereAllIsFinite) {
  const NotFinite f = hunt([](Builder&, Var x, Var w) { return x * w + 1.0; }, kOnes, kOnes);
  EXPECT_FALSE(f.is_found());
  EXPECT_EQ(f.origin(), nullptr);
  EXPECT_EQ(f.text(), "");
}

// An overflow in one place becomes a NaN in a later one: both are named, and the first is at fault.
TEST(FiniteHunt, NamesTheOpAndThePlaceInTheModel) {
  const NotFinite f = hunt(
      [](Builder& b, Var x, Var w) {
        Var y;
        {
          const Scope layer(b, "layers.1"), mlp(b, "mlp");
          y = exp(x * w);
        }
        const Scope layer(b, "layers.2");
        return y - y;
      },
      {1, 2, 3, 1000}, kOnes);
  EXPECT_TRUE(f.infinite.op.starts_with("exp (")) << f.infinite.op;
  EXPECT_EQ(f.infinite.scope, "layers.1.mlp");
  EXPECT_TRUE(f.nan.op.starts_with("sub (")) << f.nan.op;
  EXPECT_EQ(f.nan.scope, "layers.2");
  ASSERT_NE(f.origin(), nullptr);
  EXPECT_EQ(f.origin()->scope, "layers.1.mlp");
  EXPECT_EQ(f.text(), cat("the first NaN came from op ", f.nan.op, " in layers.2, the first ",
                          "infinite value before it from op ", f.infinite.op, " in layers.1.mlp"));
}

TEST(FiniteHunt, ANaNOfFiniteNumbersIsItsOwnOrigin) {
  const NotFinite f =
      hunt([](Builder&, Var x, Var w) { return sqrt(x) * w; }, {1, -1, 1, 1}, kOnes);
  EXPECT_TRUE(f.nan.op.starts_with("sqrt (")) << f.nan.op;
  EXPECT_EQ(f.origin(), &f.nan);
  EXPECT_TRUE(f.infinite.op.empty());
}

// Infinities that a mask is made of lead to no NaN, and are no fault.
TEST(FiniteHunt, MasksAreNoFault) {
  const NotFinite f = hunt(
      [](Builder& b, Var x, Var w) {
        const Var low = constant(b, -INFINITY, DType::kF32);
        const Var masked = select(gt(x, w), x, broadcast(low, {4}));
        return log(reduce_max(masked, {0}, true) - x);
      },
      {1, 2, 3, 4}, {2, 2, 2, 2});
  EXPECT_TRUE(f.nan.op.empty()) << f.text();
  // log(4 - 4), which nothing means.
  EXPECT_TRUE(f.infinite.op.starts_with("log (")) << f.text();
}

TEST(FiniteHunt, NamesAWeightThatWasNotFinite) {
  const NotFinite f =
      hunt([](Builder&, Var x, Var w) { return x * w; }, kOnes, {1, INFINITY, 1, 1});
  EXPECT_EQ(f.weight, "layers.0.w");
  EXPECT_TRUE(f.infinite.op.empty()) << "the product makes nothing infinite of finite numbers";
  EXPECT_EQ(f.text(), "the weight layers.0.w is not finite");
}

TEST(AreFinite, InEveryDtypeAndAnyStrides) {
  for (const DType t : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16})
    for (const double v : {0.0, -1.5, 65504.0, double{NAN}, double{INFINITY}, -double{INFINITY}}) {
      HostTensor all({t, {3, 5}});
      for (int64_t i = 0; i < 15; ++i) all.put(i, i == 7 ? v : 1.0);
      EXPECT_EQ(are_finite(all.ref()), std::isfinite(v)) << dtype_name(t) << " " << v;
      TensorRef every_second = all.ref();
      every_second.shape[1] = 3, every_second.stride[1] = 2;
      EXPECT_EQ(are_finite(every_second), std::isfinite(v)) << "7 stands in row 1, column 2";
    }
  HostTensor whole({DType::kI32, {4}});
  EXPECT_TRUE(are_finite(whole.ref()));
}

}  // namespace
}  // namespace tegula
