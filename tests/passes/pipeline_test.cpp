#include "tests/passes/passes.h"

namespace tegula {
namespace {

FuncId duplicate_exp(Module& m) {
  Builder b(m, "f");
  const Var x = b.param("x", {DType::kF32, {3}});
  neg(x);
  b.result("y", exp(x) * exp(x));
  return finish(b);
}

TEST(Pipeline, ReportsEveryPass) {
  Module m;
  const FuncId f = duplicate_exp(m);
  auto reports = run_passes(m, f);
  ASSERT_TRUE(reports.ok());
  EXPECT_EQ(reports->size(), pipeline().size());
  const PassReport& dce = reports->front();
  EXPECT_EQ(dce.pass, "dce");
  EXPECT_EQ(dce.function, "f");
  EXPECT_EQ(dce.nodes_before, 4);
  EXPECT_EQ(dce.nodes_after, 3);
  EXPECT_TRUE(dce.changed);
  EXPECT_NE(to_text(*reports).find("4 -> 3"), std::string::npos);
  reports = run_passes(m, f);
  ASSERT_TRUE(reports.ok());
  EXPECT_FALSE(reports->front().changed);
  EXPECT_NE(to_text(*reports).find("unchanged"), std::string::npos);
}

TEST(Pipeline, LeavesOutByName) {
  Module m;
  const FuncId f = duplicate_exp(m);
  PipelineOptions o;
  o.passes = "-cse,-fuse,-wrap";
  auto reports = run_passes(m, f, o);
  ASSERT_TRUE(reports.ok()) << reports.error().to_string();
  EXPECT_EQ(count(m[f], exp_op), 2);
  for (const PassReport& r : *reports) EXPECT_NE(r.pass, "cse");
}

TEST(Pipeline, NamesAnUnknownPass) {
  Module m;
  const FuncId f = duplicate_exp(m);
  PipelineOptions o;
  o.passes = "-csee";
  auto r = run_passes(m, f, o);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("csee"), std::string::npos);
  EXPECT_NE(r.error().message.find("passes are"), std::string::npos);
  o.passes = "cse";
  EXPECT_FALSE(run_passes(m, f, o).ok());
}

}  // namespace
}  // namespace tegula
