#include "tegula/ops/dot_quantised.h"
#include "tegula/ops/quantise.h"
#include "tests/common/run_plan.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

struct Layer {
  std::shared_ptr<Module> m = std::make_shared<Module>();
  Builder b{*m, "f"};
  Var q = b.param("q", {DType::kI8, {64, 40}}), scale = b.param("scale", {DType::kF32, {40}});
  Var x(Shape s) { return b.param("x", {DType::kF32, s}); }
};

TEST(QuantisedDot, WeightsAreNotWrittenOut) {
  for (const Shape& s : {Shape{3, 64}, Shape{2, 3, 64}}) {
    Layer l;
    l.b.result("y", matmul(l.x(s), dequantise(l.q, l.scale, 1)));
    const FuncId f = finish(l.b);
    EXPECT_TRUE(run(*l.m, f, "quantised_dot"));
    EXPECT_TRUE(only((*l.m)[f], dot_quantised_op));
    EXPECT_EQ(count((*l.m)[f], dot_op), 0);
    EXPECT_FALSE(run(*l.m, f, "quantised_dot"));
  }
}

TEST(QuantisedDot, LeavesManyRowsAndOtherScalesAlone) {
  Layer l;
  l.b.result("many", matmul(l.x({65, 64}), dequantise(l.q, l.scale, 1)));
  const Var rows = l.b.param("rows", {DType::kF32, {64}});
  l.b.result("rows", matmul(l.b.param("z", {DType::kF32, {2, 64}}), dequantise(l.q, rows, 0)));
  EXPECT_FALSE(run(*l.m, finish(l.b), "quantised_dot"));
}

// The kernel's bits, for every number of rows and threads, are those of the product with weights
// that were widened before; four bits like eight.
TEST(QuantisedDot, BitsAreThoseOfTheUnfusedGraph) {
  for (int64_t rows : {1, 2, 3, 4, 7})
    for (int64_t k : {6, 52, 4096})
      for (int bits : {8, 4}) {
        auto m = std::make_shared<Module>();
        Builder b(*m, "f");
        const int64_t n = 77, groups = k == 6 ? (bits == 4 ? 1 : 3) : 2;
        const Var x = b.param("x", {DType::kF32, {rows, k}});
        const Var q = b.param("q", {bits == 4 ? DType::kU8 : DType::kI8, {k * bits / 8, n}});
        const Var scale = b.param("scale", {DType::kF32, {groups, n}});
        b.result("y", dot_quantised(x, q, scale, bits));
        const FuncId f = finish(b);
        auto in = test::random_inputs(*m, (*m)[f], 3);
        for (int64_t i = 0; i < in[1].numel(); ++i)
          in[1].put(i, static_cast<double>((i * 7919) % 251) - (bits == 4 ? 0 : 125));
        const auto call = interpret(*m, (*m)[f], in, Arithmetic::kNaive);
        ASSERT_TRUE(call.ok());
        for (int threads : {1, 3}) {
          PlanOptions o;
          o.target.n_threads = threads;
          const auto plan = make_plan(m, f, o);
          ASSERT_TRUE(plan.ok()) << plan.error().to_string();
          ASSERT_TRUE(plan->steps[0].kernel);
          int64_t flops = 0;
          const auto have = test::run_plan(*plan, in, {}, threads, &flops);
          EXPECT_EQ(have[0].bytes, (*call)[0].bytes) << rows << " " << k << " " << bits;
          EXPECT_EQ(flops, plan->flops());
        }
      }
}

TEST(QuantisedDot, FusedAndUnfusedAgree) {
  Layer l;
  l.b.result("y", matmul(l.x({3, 64}), dequantise(l.q, l.scale, 1)));
  const FuncId f = finish(l.b);
  const auto in = test::random_inputs(*l.m, (*l.m)[f], 5);
  const auto before = interpret(*l.m, (*l.m)[f], in, Arithmetic::kNaive);
  ASSERT_TRUE(run(*l.m, f, "quantised_dot"));
  const auto after = interpret(*l.m, (*l.m)[f], in, Arithmetic::kNaive);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ((*before)[0].bytes, (*after)[0].bytes);
}

}  // namespace
}  // namespace tegula
