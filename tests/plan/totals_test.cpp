// FLOPs and bytes of a plan are exact in 64 bits, past what a double holds, or refused with the
// product that leaves them.
#include <gtest/gtest.h>

#include "tegula/ops/attention.h"
#include "tegula/ops/control.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/math.h"
#include "tegula/plan/plan.h"
#include "tegula/plan/plan_json.h"
#include "tegula/train/step.h"

namespace tegula {
namespace {

using Wide = __int128;

template <class Build>
Result<Plan> plan_of(Build&& build) {
  auto module = std::make_shared<Module>();
  Builder b(*module, "f");
  b.result("y", build(b));
  const FuncId f = TEGULA_TRY(b.finish_into_module());
  return make_plan(module, f, {});
}

// Queries and keys of one head; every query sees every key.
Result<Plan> attends(int64_t batch, int64_t seqlen, int64_t heads) {
  return plan_of([&](Builder& b) {
    const Type t{DType::kF32, {batch, seqlen, heads, 1}};
    return attention(b.param("q", t), b.param("k", t), b.param("v", t)).o;
  });
}

TEST(Totals, PastADoubleTheyAreExact) {
  const int64_t n = (int64_t{1} << 21) + 1;  // odd: so is its square
  const auto plan = attends(1, n, 101);
  ASSERT_TRUE(plan.ok()) << plan.error().to_string();
  // A pair takes 2 d + 1 for its score, 4 for its softmax and 2 d for the sum; a row 3 + d.
  const Wide want = Wide{101} * (Wide{n} * n * 9 + Wide{n} * 4);
  ASSERT_GT(want, Wide{1} << 51);
  EXPECT_EQ(plan->flops(), static_cast<int64_t>(want));
  const auto again = plan_from_json(plan_to_json(*plan), "plan");
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_EQ(again->flops(), plan->flops());
  EXPECT_NE(plan->to_string().find(cat("FLOPs ", plan->flops())), std::string::npos);
}

TEST(Totals, OfOneOpTheyEndBelow2To63) {
  // 2^20 squared is 2^40, of 9 + 4 / 2^20 FLOPs each; b · h may be 2^19 at most in 2^63.
  const int64_t n = 1 << 20;
  const auto fits = attends(1 << 9, n, 1 << 10);
  ASSERT_TRUE(fits.ok()) << fits.error().to_string();
  EXPECT_EQ(fits->flops(), (int64_t{1} << 19) * (n * n * 9 + n * 4));
  EXPECT_GT(fits->flops(), int64_t{1} << 62);
  const auto over = attends(1 << 10, n, 1 << 10);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().code, Code::kUnsupported);
  const std::string& text = over.error().message;
  EXPECT_TRUE(text.starts_with("attention: its FLOPs, a product of b 1024 x sq 1048576 x "))
      << text;
  EXPECT_NE(text.find("64 bits count (9223372036854775807)"), std::string::npos) << text;
}

TEST(Totals, OfPairsAloneThatNoNumberHolds) {
  const int64_t n = int64_t{1} << 39;
  EXPECT_FALSE(attends(1, n, 1).ok());
  const auto loss = plan_of([&](Builder& b) {
    const Type x{DType::kF32, {n, 1}};
    return linear_cross_entropy(b.param("x", x), b.param("w", x), b.param("t", {DType::kI32, {n}}))
        .lse;
  });
  ASSERT_FALSE(loss.ok());
  EXPECT_NE(loss.error().message.find("549755813888"), std::string::npos) << loss.error().message;
}

TEST(Totals, OfALoopNameRoundsAndARound) {
  const auto loop = [](int64_t trips) {
    return plan_of([&](Builder& b) {
      const Var x = b.param("x", {DType::kF32, {1 << 12, 1 << 12}});
      ScanOptions options;
      options.length = trips;
      return scan(
                 b, {x}, {}, {},
                 [](Builder&, Vars c, Vars, Vars) {
                   return StepResult{{matmul(c[0], c[0])}, {}};
                 },
                 options)
          .carry[0];
    });
  };
  const int64_t round = loop(1)->flops(), trips = INT64_MAX / round;
  const auto fits = loop(trips);
  ASSERT_TRUE(fits.ok()) << fits.error().to_string();
  EXPECT_EQ(fits->flops(), trips * round);
  const auto over = loop(trips + 1);
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().message.find(cat(" ", round)), std::string::npos) << over.error().message;
  EXPECT_NE(over.error().message.find(cat("length [", trips + 1)), std::string::npos)
      << over.error().message;
}

TEST(Totals, OfAllStepsTogether) {
  const auto twice = [](int64_t batch) {
    return plan_of([&](Builder& b) {
      const Type t{DType::kF32, {batch, 1 << 20, 1 << 10, 1}};
      const Var q = b.param("q", t), k = b.param("k", t), v = b.param("v", t);
      return attention(q, k, attention(q, k, v).o).o;
    });
  };
  const auto fits = twice(1 << 8);
  ASSERT_TRUE(fits.ok()) << fits.error().to_string();
  const auto over = twice(1 << 9);
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().message.find("plan f: its 2 steps have"), std::string::npos)
      << over.error().message;
}

TEST(Totals, OfAllMicroBatches) {
  const auto plan = attends(1 << 9, 1 << 20, 1 << 10);  // 4.7e18
  ASSERT_TRUE(plan.ok());
  TrainConfig c;
  const std::vector<const Plan*> one = {&*plan};
  ASSERT_TRUE(step_cost(c, one).ok());
  EXPECT_EQ(step_cost(c, one)->flops, plan->flops());
  c.accumulate = 2;
  const auto over = step_cost(c, one);
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().message.find(cat("2 x ", plan->flops(), " FLOPs")), std::string::npos)
      << over.error().message;
}

}  // namespace
}  // namespace tegula
