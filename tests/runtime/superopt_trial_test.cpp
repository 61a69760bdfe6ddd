// A machine's word on rewritings: bits compared element by element, wherever they lie; what was
// timed is there for the next search.
#include "tegula/runtime/superopt_trial.h"

#include <gtest/gtest.h>

#include "tegula/ops/math.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32;

// x a and x b, of rows that are apart, are one another's neighbours, or (is_wrong) change places.
Module products(bool are_joined, bool is_wrong = false) {
  Module m;
  Builder b(m, "f");
  const Var x = b.param("x", {F, {6, 16}});
  const Var w[] = {b.weight("a", {F, {16, 8}}), b.weight("b", {F, {16, 8}})};
  const Var both = dot("m k, k n -> m n", x, concat(w, 1));
  for (int i = 0; i < 2; ++i)
    b.result(i ? "z" : "y", are_joined ? slice(both, 1, 8 * (is_wrong ? 1 - i : i), 8)
                                       : dot("m k, k n -> m n", x, w[i]));
  EXPECT_TRUE(b.finish_into_module().ok());
  return m;
}

CompileOptions options(const TempDir& dir, Mode mode) {
  CompileOptions o;
  o.plan.target = Target::this_cpu(1);
  o.passes.pass.mode = mode, o.passes.passes = "-merge_products";
  o.tune.directory = dir.path();
  return o;
}

TEST(SuperoptTrial, ComparesElementsOfResultsThatAreSlices) {
  const TempDir dir;
  const CompileOptions o = options(dir, Mode::kExact);
  const Module all[] = {products(false), products(true), products(true, true)};
  const auto joined = compile(std::make_shared<Module>(all[1]), 0, o);
  ASSERT_TRUE(joined.ok());
  ASSERT_EQ((*joined).plan->results[0].tensor.stride[0], 16);  // they are
  MachineTrial trial(o, nullptr);
  const auto timed = trial.time(all, 0);
  ASSERT_TRUE(timed.ok()) << timed.error().message;
  ASSERT_EQ(timed->size(), 3u);
  EXPECT_TRUE((*timed)[1].has_bits_of_first);
  EXPECT_FALSE((*timed)[2].has_bits_of_first);
  for (const auto& t : *timed) EXPECT_GT(t.seconds, 0);
}

TEST(SuperoptTrial, KeepsWhatWasTimedForTheNextSearch) {
  const TempDir dir;
  const CompileOptions o = options(dir, Mode::kFast);
  MachineTrial first(o, nullptr);
  EXPECT_LT(first.speed(1), 0);
  first.keep_speed(1, 0), first.keep_speed(2, 1.25), first.keep_speed(3, 1);
  first.keep(4, "rule:0");
  ASSERT_TRUE(first.save().ok());
  MachineTrial next(o, nullptr);
  EXPECT_EQ(next.speed(1), 0);
  EXPECT_EQ(next.speed(2), 1.25);
  EXPECT_EQ(next.speed(3), 1);
  EXPECT_LT(next.speed(4), 0);
  EXPECT_EQ(next.recall(4), "rule:0");
  EXPECT_EQ(next.recall(2), "");
}

}  // namespace
}  // namespace tegula
