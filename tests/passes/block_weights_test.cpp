#include <cmath>

#include "tegula/ops/blocks.h"
#include "tegula/ops/common/blocks.h"
#include "tegula/ops/embedding.h"
#include "tests/common/run_plan.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr BlockFormat kQ4 = BlockFormat::kQ4_0;

// y = x W^T, and rows of W, for weights in blocks.
struct Layer {
  std::shared_ptr<Module> m = std::make_shared<Module>();
  Builder b{*m, "f"};
  Var stored = b.param("w", {DType::kU8, {70, 36}});
  Var w = dequantise_blocks(stored, kQ4);

  // Inputs with blocks that are numbers.
  std::vector<HostTensor> inputs(FuncId f) {
    auto in = test::random_inputs(*m, (*m)[f], 3);
    const SampleInput blocks = sample_blocks(kQ4, {70}, 2);
    for (int64_t i = 0; i < in[0].numel(); ++i) in[0].put(i, blocks.values[static_cast<size_t>(i)]);
    return in;
  }
};

TEST(BlockWeights, WeightsAreNotWrittenOut) {
  for (const Shape& s : {Shape{3, 64}, Shape{2, 3, 64}, Shape{64}}) {
    Layer l;
    const Var x = l.b.param("x", {DType::kF32, s});
    const char* dims = s.rank() == 1   ? "k, n k -> n"
                       : s.rank() == 2 ? "m k, n k -> m n"
                                       : "a m k, n k -> a m n";
    l.b.result("y", dot(dims, x, l.w));
    const FuncId f = finish(l.b);
    EXPECT_TRUE(run(*l.m, f, "block_weights"));
    EXPECT_EQ(count((*l.m)[f], dot_blocks_op), 1);
    EXPECT_EQ(count((*l.m)[f], dot_op), 0);
    EXPECT_FALSE(run(*l.m, f, "block_weights"));
  }
}

// Experts stacked along the first dim: each bucket by its own weights.
TEST(BlockWeights, ExpertsAreNotWrittenOut) {
  for (const bool quantises : {false, true}) {
    auto m = std::make_shared<Module>();
    Builder b(*m, "f");
    const Var stored = b.param("w", {DType::kU8, {3, 70, 36}});
    const Var x = b.param("x", {DType::kF32, {3, 2, 5, 64}});
    b.result("y", dot("e s t k, e n k -> e s t n", x, dequantise_blocks(stored, kQ4)));
    const FuncId f = finish(b);
    PassOptions o;
    o.quantises_rows = quantises;
    EXPECT_TRUE(run(*m, f, "block_weights", o));
    EXPECT_EQ(count((*m)[f], dot_blocks_op), 1);
    EXPECT_EQ(count((*m)[f], quantise_blocks_op), quantises ? 1 : 0);
    EXPECT_EQ(count((*m)[f], dot_op), 0);
  }
}

TEST(BlockWeights, LeavesOtherDotsAlone) {
  Layer l;
  const Var x = l.b.param("x", {DType::kF32, {70, 3}});
  l.b.result("y", dot("n m, n k -> m k", x, l.w));
  EXPECT_FALSE(run(*l.m, finish(l.b), "block_weights"));
}

// Rows of f32: bits of the graph as it was written. Rows of bytes: those of the definition.
TEST(BlockWeights, BitsAreThoseOfTheGraph) {
  for (bool quantises : {false, true}) {
    Layer l;
    const Var x = l.b.param("x", {DType::kF32, {5, 64}});
    const Var ids = l.b.param("ids", {DType::kI32, {4}});
    l.b.result("y", dot("m k, n k -> m n", x, l.w));
    l.b.result("rows", embedding(l.w, ids));
    const FuncId f = finish(l.b);
    auto in = l.inputs(f);
    for (int64_t i = 0; i < 4; ++i) in[2].put(i, static_cast<double>(i * 23));
    const auto written = interpret(*l.m, (*l.m)[f], in, Arithmetic::kNaive);
    ASSERT_TRUE(written.ok());
    PassOptions options;
    options.quantises_rows = quantises;
    ASSERT_TRUE(run(*l.m, f, "block_weights", options));
    const auto want = interpret(*l.m, (*l.m)[f], in, Arithmetic::kNaive);
    ASSERT_TRUE(want.ok());
    const auto plan = make_plan(l.m, f, {});
    ASSERT_TRUE(plan.ok()) << plan.error().to_string();
    const auto have = test::run_plan(*plan, in);
    ASSERT_EQ(have.size(), 2u);
    for (size_t r = 0; r < have.size(); ++r) {
      EXPECT_EQ(have[r].bytes, (*want)[r].bytes) << r;
      if (!quantises) EXPECT_EQ(have[r].bytes, (*written)[r].bytes) << r;
    }
    for (int64_t i = 0; i < have[0].numel(); ++i)
      EXPECT_NEAR(have[0].at(i), (*written)[0].at(i), 0.02 * 8) << i;
  }
}

// Rows in bytes: the kernel's bits are the definition's, also of zeros and of no numbers.
TEST(BlockWeights, QuantisedRowsAreTheDefinitions) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "f");
  const QuantisedRows rows = quantise_blocks(b.param("x", {DType::kF32, {5, 96}}));
  b.result("q", rows.q);
  b.result("d", rows.d);
  const FuncId f = finish(b);
  auto in = test::random_inputs(*m, (*m)[f], 3);
  for (int64_t i = 0; i < 32; ++i) in[0].put(i, 0.0);
  in[0].put(40, HUGE_VAL);
  in[0].put(70, std::nan(""));
  const auto want = interpret(*m, (*m)[f], in, Arithmetic::kNaive);
  ASSERT_TRUE(want.ok());
  const auto have = test::run_plan(*make_plan(m, f, {}), in);
  ASSERT_EQ(have.size(), 2u);
  EXPECT_EQ(have[0].bytes, (*want)[0].bytes);
  for (int64_t i = 0; i < have[1].numel(); ++i) {
    const double got = have[1].at(i), is = (*want)[1].at(i);
    EXPECT_TRUE(got == is || (std::isnan(got) && std::isnan(is))) << i << " " << got << " " << is;
  }
}

}  // namespace
}  // namespace tegula
