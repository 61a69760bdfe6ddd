// exact_shards and sum_shards: which sums get shards, and what a sum in shards is.
#include "tegula/passes/sum_shards.h"

#include <cmath>

#include "tegula/ir/sum_shards.h"
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
  return only(f, reduce_sum_op)->attrs.get_or<std::vector<int64_t>>(kSumShards, {1})[0];
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

FuncId sum_over_rows(Module& m, int64_t batch, int64_t seqlen) {
  Builder b(m, "f");
  b.result("y", reduce_sum(b.param("x", {F, {batch, seqlen, 3}}), {0, 1}));
  return finish(b);
}

TEST(ExactShards, OfASequenceBeginAt256) {
  for (const auto& [batch, seqlen, shards] :
       {std::tuple<int64_t, int64_t, std::vector<int64_t>>{4, 255, {4}},
        {4, 248, {4}},
        {4, 256, {4, 8}},
        {1, 256, {1, 8}},
        {3, 260, {1, 4}},
        {16, 264, {8, 8}},
        {2, 257, {2}}}) {
    Module m;
    const FuncId f = sum_over_rows(m, batch, seqlen);
    ASSERT_TRUE(run(m, f, "exact_shards", of_a_step()));
    EXPECT_EQ(only(m[f], reduce_sum_op)->attrs.ints(kSumShards), shards) << batch << " " << seqlen;
  }
}

// Products of a batch and a sequence have cells; those of one of both alone have shards of their k.
TEST(ExactShards, OfProducts) {
  struct Want {
    int64_t batch, seqlen, k_shards;
    std::vector<int64_t> cells;
  };
  for (const Want& want : {Want{4, 16, 4, {}}, Want{1, 16, 1, {}}, Want{8, 64, 8, {}},
                           Want{12, 64, 8, {}}, Want{1, 256, 8, {}}, Want{1, 512, 8, {}},
                           Want{4, 256, 1, {4, 8}}, Want{3, 256, 1, {1, 8}}}) {
    Module m;
    Builder b(m, "f");
    const Var x = b.param("x", {F, {want.batch, want.seqlen, 5}});
    const Var y = b.param("y", {F, {want.batch, want.seqlen, 3}});
    b.result("w", dot("b s m, b s n -> m n", x, y));
    const FuncId f = finish(b);
    run(m, f, "exact_shards", of_a_step());
    const Attrs& attrs = only(m[f], dot_op)->attrs;
    EXPECT_EQ(attrs.get_or<int64_t>("k_shards", 1), want.k_shards) << want.batch;
    EXPECT_EQ(attrs.get_or<std::vector<int64_t>>(kSumShards, {}), want.cells) << want.batch;
    EXPECT_FALSE(run(m, f, "exact_shards", of_a_step())) << "twice is once";
  }
}

HostTensor filled(const Type& type, int seed) {
  HostTensor x(type);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.put(i, std::sin(static_cast<double>(i * i + seed)) * (i % 5 == 0 ? 1e3 : 1));
  return x;
}

// Cell (p, q) is a chain over its rows, and over the tokens of its share of each; q first.
template <class Term>
float in_cells(int64_t batch, int64_t seqlen, int64_t n_outer, int64_t n_inner, const Term& add) {
  std::vector<float> outer;
  const auto tree = [](std::vector<float> x) {
    for (size_t w = 1; w < x.size(); w *= 2)
      for (size_t i = 0; i < x.size(); i += 2 * w) x[i] += x[i + w];
    return x[0];
  };
  for (int64_t p = 0; p < n_outer; ++p) {
    std::vector<float> inner;
    for (int64_t q = 0; q < n_inner; ++q) {
      float sum = 0;
      for (int64_t i = p * batch / n_outer; i < (p + 1) * batch / n_outer; ++i)
        for (int64_t j = q * seqlen / n_inner; j < (q + 1) * seqlen / n_inner; ++j)
          sum = add(i * seqlen + j, sum);
      inner.push_back(sum);
    }
    outer.push_back(tree(inner));
  }
  return tree(outer);
}

TEST(SumShards, OfTwoFactorsAreJoinedOverTheSequenceFirst) {
  for (const auto& [batch, n_outer] : {std::pair<int64_t, int64_t>{4, 4}, {6, 2}, {1, 1}}) {
    Module m;
    const FuncId f = sum_over_rows(m, batch, 256);
    ASSERT_TRUE(run(m, f, "exact_shards", of_a_step()));
    ASSERT_TRUE(run(m, f, "sum_shards"));
    EXPECT_FALSE(run(m, f, "sum_shards"));
    const std::vector<HostTensor> in = {filled({F, {batch, 256, 3}}, 1)};
    const HostTensor got = (*interpret(m, m[f], in, Arithmetic::kNaive))[0];
    for (int64_t k = 0; k < 3; ++k)
      EXPECT_EQ(static_cast<float>(got.at(k)),
                in_cells(batch, 256, n_outer, 8, [&](int64_t at, float sum) {
                  return sum + static_cast<float>(in[0].at(at * 3 + k));
                }));
  }
}

// A product's cells are one launch for the inner shards of all outer ones, whatever the order in
// which its second operand has the two.
TEST(SumShards, OfAProductHaveTheBitsOfTheirCells) {
  for (const bool is_turned : {false, true})
    for (const auto& [batch, n_outer] :
         {std::pair<int64_t, int64_t>{4, 4}, {6, 2}, {3, 1}, {16, 8}}) {
      Module m;
      Builder b(m, "f");
      const Var x = b.param("x", {F, {batch, 256, 2}});
      const Var y = b.param("y", {F, is_turned ? Shape{256, 3, batch} : Shape{batch, 256, 3}});
      b.result("w", dot(is_turned ? "b s m, s n b -> n m" : "b s m, b s n -> n m", x, y));
      const FuncId f = finish(b);
      ASSERT_TRUE(run(m, f, "exact_shards", of_a_step()));
      ASSERT_TRUE(run(m, f, "sum_shards"));
      EXPECT_EQ(count(m[f], dot_op), 1);
      const std::vector<HostTensor> in = {filled(m[f].type(m[f].params[0].value), 1),
                                          filled(m[f].type(m[f].params[1].value), 2)};
      const HostTensor got = (*interpret(m, m[f], in, Arithmetic::kNaive))[0];
      for (int64_t o = 0; o < 6; ++o) {
        const auto y_at = [&](int64_t at) {
          const int64_t i = at / 256, j = at % 256;
          return is_turned ? (j * 3 + o / 2) * batch + i : at * 3 + o / 2;
        };
        EXPECT_EQ(static_cast<float>(got.at(o)),
                  in_cells(batch, 256, n_outer, 8,
                           [&](int64_t at, float sum) {
                             return std::fma(static_cast<float>(in[0].at(at * 2 + o % 2)),
                                             static_cast<float>(in[1].at(y_at(at))), sum);
                           }))
            << batch << " " << o;
      }
    }
}

// In an op with several results, sums are joined and the others laid side by side.
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
