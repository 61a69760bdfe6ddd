// Random graphs, fused or not: FLOPs counted by the kernels = planned = counted by the references.
#include <gtest/gtest.h>

#include "tegula/ir/text.h"
#include "tegula/runtime/compile.h"
#include "tests/common/random_graph.h"
#include "tests/common/run_plan.h"

namespace tegula {
namespace {

TEST(Flops, CountedAsPlannedOnRandomGraphs) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    auto m = std::make_shared<Module>();
    testing::RandomGraph graph(*m, seed);
    auto f = graph.build();
    ASSERT_TRUE(f.ok()) << f.error().to_string();
    CompileOptions o;
    o.plan.verify = true;
    auto compiled = compile(m, *f, o);
    if (!compiled.ok()) {
      ADD_FAILURE() << "seed " << seed << ": " << compiled.error().to_string();
      continue;
    }
    Rank rank(1);
    auto s = Session::create(compiled->plan, rank);
    ASSERT_TRUE(s.ok());
    auto in = testing::random_inputs((*m)[*f], seed);
    for (size_t i = 0; i < in.size(); ++i) (*s)->bind(static_cast<int>(i), in[i].bytes.data());
    std::vector<StepStats> stats(compiled->plan->steps.size());
    (*s)->collect(&stats);
    ASSERT_TRUE((*s)->run().ok());
    for (size_t i = 0; i < stats.size(); ++i)
      EXPECT_EQ(stats[i].math_flops, compiled->plan->steps[i].flops)
          << "seed " << seed << " step " << i << compiled->plan->to_string() << to_text(*m);
  }
}

}  // namespace
}  // namespace tegula
