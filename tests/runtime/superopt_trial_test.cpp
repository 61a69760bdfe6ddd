// A machine's word on rewritings: bits compared element by element, wherever they lie; what was
// timed is there for the next search.
#include "tegula/runtime/superopt_trial.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tegula/base/philox.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/math.h"
#include "tests/common/run_ranks.h"
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
  first.keep(4, "rule:0", true), first.keep(5, "rule:1", false);
  EXPECT_EQ(first.recall(5), "rule:1");
  ASSERT_TRUE(first.save().ok());
  MachineTrial next(o, nullptr);
  EXPECT_EQ(next.speed(1), 0);
  EXPECT_EQ(next.speed(2), 1.25);
  EXPECT_EQ(next.speed(3), 1);
  EXPECT_LT(next.speed(4), 0);
  EXPECT_EQ(next.recall(4), "rule:0");
  EXPECT_EQ(next.recall(2), "");
  EXPECT_EQ(next.recall(5), "");  // a search that was cut short goes on
}

// A layer's products, which all ranks of tp do alike, and a table whose rows they share out, so
// that each counts from a row of its own.
CompiledRanks layer_and_table(const char* mesh, CompileOptions o) {
  auto m = std::make_shared<Module>();
  Builder b(*m, "f");
  const Var x = b.param("x", {F, {4, 8, 16}});
  const Var ids = b.param("ids", {DType::kI32, {4, 8}}), table = b.weight("table", {F, {12, 6}});
  {
    Scope layer(b, "layers.0");
    for (const char* name : {"q", "k", "v"})
      b.result(name, dot("b m k, k n -> b m n", x, b.weight(cat("w", name), {F, {16, 8}})));
  }
  b.result("rows", embedding(table, ids));
  const auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok());
  m->mesh = *mesh_from_text(mesh);
  ShardOptions so{m->mesh, std::vector<Sharding>(6, replicated(m->mesh)), o.passes.pass.mode};
  if (const int tp = m->mesh.find("tp"); tp >= 0)
    so.params[2][static_cast<size_t>(tp)] = AxisSharding::split(0);
  if (const int dp = m->mesh.find("dp"); dp >= 0)
    for (const size_t p : {0, 1}) so.params[p][static_cast<size_t>(dp)] = AxisSharding::split(0);
  auto ranks = compile_ranks(m, *f, so, o);
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  return std::move(*ranks);
}

// Finds what it is asked first faster, and nothing else.
struct Fickle : superopt::Trial {
  std::map<uint64_t, std::string> kept;
  int n_timed = 0;
  Result<std::vector<Timed>> time(std::span<const Module> all, double) override {
    std::vector<Timed> out(all.size(), {1, n_timed++ == 0 ? 1.5 : .5, true});
    out[0] = {1, 1, true};
    return out;
  }
  std::string recall(uint64_t block) override { return kept[block]; }
  void keep(uint64_t block, const std::string& text, bool) override { kept[block] = text; }
};

TEST(SuperoptTrial, BlocksOfRanksThatAreAlikeBecomeAlike) {
  for (const char* mesh : {"tp=2", "dp=2", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    CompileOptions o;
    o.plan.verify = true, o.passes.verify = true, o.passes.pass.mode = Mode::kExact;
    o.plan.target.n_threads = 1, o.passes.passes = "-merge_products,-merge_sums";
    const CompiledRanks one = layer_and_table("", o);
    Fickle trial;
    o.superopt_seconds = 60, o.trial = &trial;
    const CompiledRanks many = layer_and_table(mesh, o);
    for (const superopt::Found& found : many.rewritten) {
      ASSERT_EQ(found.rules.size(), 1u);
      EXPECT_EQ(found.rules[0].name, "products_of_one_value");
      EXPECT_EQ(found.rules[0].times, 2);
    }
    std::vector<HostTensor> in;
    for (const Plan::Port& p : one.plans[0]->params) {
      in.emplace_back(p.tensor.type);
      for (int64_t i = 0; i < in.back().numel(); ++i) {
        const double u = philox_uniform(7, in.size(), static_cast<uint64_t>(i));
        in.back().put(i, is_float(p.tensor.type.dtype) ? u - .5 : std::floor(12 * u));
      }
    }
    const auto want = test::run_ranks(one, in)[0];
    const auto have = test::run_ranks(many, in);
    for (size_t r = 0; r < have.size(); ++r)
      for (size_t i = 0; i < want.size(); ++i) {
        Sharding s = replicated(many.mesh);
        if (have[r][i].numel() < want[i].numel())
          s[static_cast<size_t>(many.mesh.find("dp"))] = AxisSharding::split(0);
        EXPECT_EQ(have[r][i].bytes,
                  test::share_of_whole(many.mesh, want[i], s, many.mesh.at(static_cast<int64_t>(r)))
                      .bytes)
            << "rank " << r << ", result " << i;
      }
  }
}

}  // namespace
}  // namespace tegula
