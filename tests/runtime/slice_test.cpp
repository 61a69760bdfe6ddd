// The thin slice: a model written as maths goes through builder, autodiff, plan and interpreter,
// and its loss falls.
#include <gtest/gtest.h>

#include "tegula/base/philox.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/session.h"

namespace tegula {
namespace {

TEST(Slice, MlpLearnsXor) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "step");
  const Var x = b.param("x", {DType::kF32, {4, 2}});
  const Var y = b.param("y", {DType::kF32, {4, 1}});
  std::vector<Var> w = {b.weight("w1", {DType::kF32, {2, 16}}), b.weight("b1", {DType::kF32, {16}}),
                        b.weight("w2", {DType::kF32, {16, 1}}), b.weight("b2", {DType::kF32, {1}})};
  const Var h = tanh(matmul(x, w[0]) + w[1]);
  const Var error = matmul(h, w[2]) + w[3] - y;
  const Var loss = reduce_mean(error * error, {0, 1});
  const auto g = grad(loss, w);
  b.result("loss", loss);
  for (size_t i = 0; i < w.size(); ++i) {
    const std::string name = b.function().params[2 + i].name;
    b.result(name, w[i] - g[i] * 0.2);
    b.donate(name, name);
  }
  const auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok()) << f.error().to_string();
  auto plan = make_plan(module, *f, {.target = Target::this_cpu(2)});
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  EXPECT_EQ(plan->arena_bytes, plan->lower_bound_bytes) << plan->to_string();

  Rank rank(2);
  Store store(rank);
  auto session = Session::create(std::make_shared<Plan>(std::move(*plan)), rank);
  ASSERT_TRUE(session.ok());
  float xs[] = {0, 0, 0, 1, 1, 0, 1, 1}, ys[] = {0, 1, 1, 0};
  Session& s = **session;
  ASSERT_TRUE(s.bind("x", xs).ok());
  ASSERT_TRUE(s.bind("y", ys).ok());
  ASSERT_TRUE(s.bind_store(store).ok());
  uint64_t at = 0;
  for (const char* name : {"w1", "w2"}) {
    const TensorRef t = store.find(name);
    for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = philox_uniform(1, 0, at++) * 2 - 1;
  }
  float first = 0, last = 0;
  for (int step = 0; step < 500; ++step) {
    ASSERT_TRUE(s.run().ok());
    last = s.result("loss").as<float>()[0];
    if (step == 0) first = last;
  }
  EXPECT_GT(first, 0.2f);
  EXPECT_LT(last, 0.01f);
}

}  // namespace
}  // namespace tegula
