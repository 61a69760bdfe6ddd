// exact_shards and sum_shards: which sums get shards, and what a sum in shards is.
#include "tegula/passes/sum_shards.h"

#include <cmath>

#include "tegula/ir/sharding.h"
#include "tests/passes/passes.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32;

PassOptions of_a_step(Mode mode = Mode::kExact) {
  PassOptions o;
  o.mode = mode, o.is_step = true;
  return o;
}

FuncId sum_over_batch(Module& m, Dim batch) {
  Builder b(m, "f");
  b.result("y", reduce_sum(b.param("x", {F, {batch, 5, 3}}), {0, 1}));
  return finish(b);
}

int64_t shards_of_sum(const Function& f) {
  return only(f, reduce_sum_op)->attrs.get_or<int64_t>(kSumShards, 1);
}

TEST(ExactShards, AreTheGreatestPowerOfTwoUpTo8ThatDividesTheBatch) {
  for (const auto& [batch, shards] : {std::pair<int64_t, int64_t>{1, 1},
                                      {2, 2},
                                      {3, 1},
                                      {4, 4},
                                      {6, 2},
                                      {12, 4},
                                      {8, 8},
                                      {48, 8}}) {
    Module m;
    const FuncId f = sum_over_batch(m, batch);
    EXPECT_EQ(run(m, f, "exact_shards", of_a_step()), shards > 1) << batch;
    EXPECT_EQ(shards_of_sum(m[f]), shards) << batch;
    EXPECT_FALSE(run(m, f, "exact_shards", of_a_step())) << "twice is once";
  }
}

TEST(ExactShards, LeaveAloneWhatNoRanksShare) {
  const auto stays = [](auto&& build, const PassOptions& options) {
    Module m;
    const FuncId f = build(m);
    return !run(m, f, "exact_shards", options);
  };
  const auto batch_of_8 = [](Module& m) { return sum_over_batch(m, 8); };
  EXPECT_FALSE(stays(batch_of_8, of_a_step()));
  EXPECT_TRUE(stays(batch_of_8, of_a_step(Mode::kFast)));
  PassOptions no_step = of_a_step(), region = of_a_step();
  no_step.is_step = false, region.is_region = true;
  EXPECT_TRUE(stays(batch_of_8, no_step));
  EXPECT_TRUE(stays(batch_of_8, region));
  EXPECT_TRUE(
      stays([](Module& m) { return sum_over_batch(m, m.add_symbol("n", 8)); }, of_a_step()));
  const auto of_the_update = [](Module& m) {
    Builder b(m, "f");
    b.set_phase(Phase::kUpdate);
    b.result("y", reduce_sum(b.param("x", {F, {8, 5}}), {0}));
    return finish(b);
  };
  EXPECT_TRUE(stays(of_the_update, of_a_step()));
  const auto of_rows = [](Module& m) {  // a row's sum crosses no batch
    Builder b(m, "f");
    b.result("y", reduce_sum(b.param("x", {F, {8, 16}}), {1}));
    return finish(b);
  };
  EXPECT_TRUE(stays(of_rows, of_a_step()));
}

// The tree of the op's own results on each shard, bit for bit, as an independent loop makes it.
TEST(SumShards, AreTheOpOnEachShardInATreeOverNeighbours) {
  Module m;
  const FuncId f = sum_over_batch(m, 8);
  ASSERT_TRUE(run(m, f, "exact_shards", of_a_step()));
  const Function before = m[f];
  ASSERT_TRUE(run(m, f, "sum_shards"));
  EXPECT_FALSE(run(m, f, "sum_shards"));
  EXPECT_EQ(count(m[f], reduce_sum_op), 8);
  EXPECT_EQ(count(m[f], add_op), 7);
  HostTensor x({F, {8, 5, 3}});
  for (int64_t i = 0; i < x.numel(); ++i) x.put(i, std::sin(static_cast<double>(i * i)) * 1e3);
  const std::vector<HostTensor> in = {x};
  const HostTensor got = (*interpret(m, m[f], in, Arithmetic::kNaive))[0];
  for (int64_t k = 0; k < 3; ++k) {
    float shard[8] = {};
    for (int64_t s = 0; s < 8; ++s)
      for (int64_t j = 0; j < 5; ++j) shard[s] += static_cast<float>(x.at((s * 5 + j) * 3 + k));
    for (int w = 1; w < 8; w *= 2)
      for (int s = 0; s < 8; s += 2 * w) shard[s] += shard[s + w];
    EXPECT_EQ(static_cast<float>(got.at(k)), shard[0]);
  }
}

// Sums over the same shards are added within each before the tree, through a cast, too.
TEST(SumShards, ThatAreAddedAreAddedShardByShard) {
  for (const bool has_cast : {false, true}) {
    Module m;
    Builder b(m, "f");
    Var x[3];
    for (int i = 0; i < 3; ++i) {
      const Var p = b.param(std::string(1, static_cast<char>('x' + i)), {F, {8, 5}});
      x[i] = reduce_sum(p, {0});
    }
    b.result("y", (x[0] + x[1]) + x[2]);
    const FuncId f = finish(b);
    ASSERT_TRUE(run(m, f, "exact_shards", of_a_step()));
    EXPECT_FALSE(run(m, f, "exact_shards", of_a_step()));
    if (has_cast) {  // as autocast leaves them: a cast between a sum and what adds it
      Rewriter rw(m, m[f]);
      for (const Node& n : m[f].nodes) {
        rw.clone(n);
        if (n.op == &reduce_sum_op)
          rw.bind(n.output(), rw.builder().emit(cast_op, {{"dtype", F}}, {rw.at(n.output())}));
      }
      m[f] = *rw.finish();
    }
    ASSERT_TRUE(run(m, f, "sum_shards"));
    EXPECT_EQ(count(m[f], add_op), 8 * 2 + 7);
    std::vector<HostTensor> in;
    for (int p = 0; p < 3; ++p) {
      in.emplace_back(Type{F, {8, 5}});
      for (int64_t i = 0; i < 40; ++i)
        in.back().put(i, std::sin(static_cast<double>(i * i + 7 * p)) * (p == 1 ? 1e3 : 1));
    }
    const HostTensor got = (*interpret(m, m[f], in, Arithmetic::kNaive))[0];
    for (int64_t k = 0; k < 5; ++k) {
      float shard[8];
      for (int64_t s = 0; s < 8; ++s) {
        const auto at = [&](size_t p) { return static_cast<float>(in[p].at(s * 5 + k)); };
        shard[s] = (at(0) + at(1)) + at(2);
      }
      for (int w = 1; w < 8; w *= 2)
        for (int s = 0; s < 8; s += 2 * w) shard[s] += shard[s + w];
      EXPECT_EQ(static_cast<float>(got.at(k)), shard[0]);
    }
  }
}

// Of an op with several results, sums are joined and the others laid side by side.
TEST(SumShards, OfSeveralResultsOnlySumsAreSummed) {
  Module m;
  Builder b(m, "f");
  const Var table = b.param("w", {F, {7, 4}});
  const Var x = b.param("x", {F, {4, 3, 4}}), t = b.param("t", {DType::kI32, {4, 3}});
  const Var lse = b.param("lse", {F, {4, 3}}), g = b.param("g", {F, {4, 3}});
  const Var in[] = {x, table, t, lse, g, g};
  const auto out = b.emit_n(linear_cross_entropy_bwd_op, {}, in);
  b.result("dx", out[0]), b.result("dw", out[1]);
  const FuncId f = finish(b);
  const Function before = m[f];
  ASSERT_TRUE(run(m, f, "exact_shards", of_a_step()));
  ASSERT_TRUE(run(m, f, "sum_shards"));
  EXPECT_EQ(count(m[f], linear_cross_entropy_bwd_op), 4);
  const auto inputs = random_inputs(m, before, 3);
  const auto want = *interpret(m, before, inputs), got = *interpret(m, m[f], inputs);
  for (size_t r = 0; r < want.size(); ++r)
    for (int64_t i = 0; i < want[r].numel(); ++i)
      EXPECT_NEAR(got[r].at(i), want[r].at(i), 1e-12 * (1 + std::fabs(want[r].at(i))));
}

}  // namespace
}  // namespace tegula
