#include <algorithm>

#include "tegula/ir/text.h"
#include "tegula/ops/control.h"
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
  const PassReport& dce = *std::find_if(reports->begin(), reports->end(),
                                        [](const PassReport& r) { return r.pass == "dce"; });
  EXPECT_EQ(dce.function, "f");
  EXPECT_EQ(dce.nodes_before, 4);
  EXPECT_EQ(dce.nodes_after, 3);
  EXPECT_TRUE(dce.changed);
  EXPECT_NE(to_text(*reports).find("4 -> 3"), std::string::npos);
  reports = run_passes(m, f);
  ASSERT_TRUE(reports.ok());
  for (const PassReport& r : *reports) EXPECT_FALSE(r.changed) << r.pass;
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

TEST(Pipeline, BodiesAreDoneWithTheFunctionThatHoldsThem) {
  Module m;
  Builder b(m, "f");
  const Var h = b.param("h", {DType::kF32, {2, 4}}), xs = b.param("xs", {DType::kF32, {5, 2, 4}});
  const Var w = b.weight("w", {DType::kF32, {4, 4}});
  const auto out =
      scan(b, {h}, {matmul(xs, w)}, {w}, [](Builder&, Vars c, Vars x, Vars i) -> StepResult {
        return {{tanh(matmul(c[0], i[0]) + x[0])}, {}};
      });
  b.result("y", out.carry[0]);
  const FuncId f = finish(b);
  PipelineOptions o;
  o.pass.compute_dtype = DType::kBF16;
  auto reports = run_passes(m, f, o);
  ASSERT_TRUE(reports.ok()) << reports.error().to_string();
  for (const PassReport& r : *reports)
    if (r.pass == "autocast") EXPECT_EQ(r.function, "f");
  EXPECT_EQ(m[f].type(only(m[f], dot_op)->inputs[0]).dtype, DType::kBF16);
  const Function& body = m[only(m[f], scan_op)->regions[0]];
  EXPECT_EQ(body.type(only(body, dot_op)->inputs[1]).dtype, DType::kBF16);
  EXPECT_GT(count(body, fused_op), 0);  // the new body has been through all passes
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

TEST(Pipeline, PhasesAndNeedsAreChecked) {
  EXPECT_TRUE(check_order(pipeline()).ok());
  const PassDef *fuse = find_pass("fuse"), *lower = find_pass("lower"), *wrap = find_pass("wrap"),
                *remat = find_pass("remat"), *loops = find_pass("merge_scans");
  const auto why = [](std::vector<const PassDef*> order) {
    const Status st = check_order(order);
    return st.ok() ? std::string() : st.error().message;
  };
  EXPECT_EQ(why({lower, remat, fuse, wrap}), "");
  EXPECT_NE(why({lower, loops}).find("merge_scans stands behind a pass of a later phase"),
            std::string::npos);
  EXPECT_NE(why({fuse, wrap}).find("fuse stands where what it needs is not there"),
            std::string::npos);
  EXPECT_NE(why({lower, wrap}).find("wrap stands where"), std::string::npos);
  Module m;
  const FuncId f = duplicate_exp(m);
  PipelineOptions o;
  const PassDef* order[] = {fuse, lower};
  o.order = order;
  EXPECT_FALSE(run_passes(m, f, o).ok());
}

// Two halves are the whole.
TEST(Pipeline, RunsInTwoParts) {
  Module whole, halves;
  const FuncId f = duplicate_exp(whole), g = duplicate_exp(halves);
  ASSERT_TRUE(run_passes(whole, f).ok());
  PipelineOptions o;
  o.until = PassPhase::kPartition;
  ASSERT_TRUE(run_passes(halves, g, o).ok());
  EXPECT_EQ(count(halves[g], exp_op), 1);  // nothing is fused yet
  o.from = PassPhase::kPartition, o.until = kAllPhases;
  ASSERT_TRUE(run_passes(halves, g, o).ok());
  EXPECT_EQ(to_text(whole), to_text(halves));
}

}  // namespace
}  // namespace tegula
