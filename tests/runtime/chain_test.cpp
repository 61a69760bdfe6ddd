// Inference of a chain of layers lives in two buffers: what a layer reads and what it writes.
#include <gtest/gtest.h>

#include <set>

#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tests/common/run_plan.h"

namespace tegula {
namespace {

constexpr int64_t kRows = 48, kWidth = 64;
constexpr int64_t kBytes = kRows * kWidth * 4;

Plan plan_chain(int n_layers, CompileOptions options, std::shared_ptr<Module>* keep = nullptr) {
  auto m = std::make_shared<Module>();
  if (keep) *keep = m;
  Builder b(*m, "chain");
  Var x = b.param("x", {DType::kF32, {kRows, kWidth}});
  for (int i = 0; i < n_layers; ++i)
    x = gelu(matmul(x, b.weight(cat("w", i), {DType::kF32, {kWidth, kWidth}})) +
             b.weight(cat("b", i), {DType::kF32, {kWidth}}));
  b.result("y", x);
  const auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok());
  options.passes.pass.is_inference = true;
  auto compiled = compile(m, *f, options);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  return *compiled->plan;
}

int64_t largest_workspace(const Plan& p) {
  int64_t most = 0;
  for (const Slot& s : p.slots)
    if (s.is_workspace) most = std::max(most, s.bytes);
  return (most + 63) / 64 * 64;
}

TEST(Chain, TwoBuffersWhateverItsLength) {
  for (int n_layers : {2, 3, 8, 24}) {
    CompileOptions no_workspace;
    no_workspace.plan.force_kernel = {{"dot", "dot_naive"}};
    const Plan p = plan_chain(n_layers, no_workspace);
    EXPECT_EQ(largest_workspace(p), 0) << p.to_string();
    EXPECT_EQ(p.arena_bytes, 2 * kBytes) << p.to_string();
    std::set<int64_t> offsets;
    for (const Step& s : p.steps)
      for (const PlanTensor& t : s.out) offsets.insert(p.slots[static_cast<size_t>(t.slot)].offset);
    EXPECT_EQ(offsets, (std::set<int64_t>{0, kBytes}));

    const Plan packed = plan_chain(n_layers, {});
    EXPECT_GT(largest_workspace(packed), 0);
    EXPECT_EQ(packed.arena_bytes, 2 * kBytes + largest_workspace(packed)) << packed.to_string();
  }
}

TEST(Chain, OneBufferWhereLayersMayOverwriteWhatTheyRead) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "chain");
  Var x = b.param("x", {DType::kF32, {kRows, kWidth}});
  for (int i = 0; i < 9; ++i) x = tanh(x) * 3.0;
  b.result("y", x);
  const auto f = b.finish_into_module();
  ASSERT_TRUE(f.ok());
  CompileOptions options;
  options.passes.passes = "-fuse";
  const auto compiled = compile(m, *f, options);
  ASSERT_TRUE(compiled.ok());
  EXPECT_EQ(compiled->plan->arena_bytes, kBytes + largest_workspace(*compiled->plan));
}

// Nothing is lost in them: the bits are those of the layers one by one.
TEST(Chain, TwoBuffersHoldTheRightBits) {
  std::shared_ptr<Module> m;
  const Plan p = plan_chain(5, {}, &m);
  CompileOptions plain;
  plain.passes.passes = "-bias_activation,-fuse";
  std::shared_ptr<Module> m2;
  const Plan q = plan_chain(5, plain, &m2);
  const auto in = test::random_inputs(*m, (*m)[0], 7);
  EXPECT_EQ(test::run_plan(p, in)[0].bytes, test::run_plan(q, in)[0].bytes);
}

}  // namespace
}  // namespace tegula
