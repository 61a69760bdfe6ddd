// Steps whose values are said to lie somewhere, on ranks: sharded = whole, whatever is said; rows
// of tables that ranks share out, whose ops count from their first row themselves; and what ranks
// execute together, compared before they begin.
#include <cmath>
#include <map>
#include <set>

#include "tegula/base/philox.h"
#include "tegula/ir/hash.h"
#include "tegula/ir/interpret.h"
#include "tegula/ir/text.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/embedding.h"
#include "tegula/ops/indexing.h"
#include "tegula/ops/linear_cross_entropy.h"
#include "tegula/ops/table.h"
#include "tegula/passes/shard_check.h"
#include "tegula/plan/collectives.h"
#include "tegula/train/ranks.h"
#include "tests/common/random_graph.h"
#include "tests/common/random_shardings.h"
#include "tests/common/run_ranks.h"
#include "tests/common/sweep.h"

namespace tegula {
namespace {

constexpr DType F = DType::kF32, I = DType::kI32;

CompileOptions options_of(Mode mode) {
  CompileOptions o;
  o.plan.verify = true, o.passes.verify = true, o.passes.pass.mode = mode;
  o.plan.target.n_threads = 1;
  return o;
}

// Small integers, so that every order of sums gives the same; state smaller still.
std::vector<HostTensor> integers(const Function& f, uint64_t seed) {
  std::vector<HostTensor> in;
  for (const Param& p : f.params) {
    HostTensor t(f.type(p.value));
    const int n = p.role == Role::kState ? 3 : 7;
    for (int64_t i = 0; i < t.numel(); ++i)
      t.put(i, std::floor(n * philox_uniform(seed, in.size(), static_cast<uint64_t>(i))) -
                   (is_float(t.type.dtype) ? n / 2 : 0));
    in.push_back(std::move(t));
  }
  return in;
}

// "": each rank has its share of the reference's results.
std::string compare(const Module& m, FuncId f, const CompiledRanks& ranks,
                    const std::vector<HostTensor>& in, const std::vector<HostTensor>& want) {
  const auto have = test::run_ranks(ranks, in);
  for (size_t r = 0; r < have.size(); ++r)
    for (size_t i = 0; i < want.size(); ++i) {
      Sharding s = replicated(ranks.mesh);
      for (size_t p = 0; p < m[f].params.size(); ++p)
        if (m[f].params[p].donated_to == static_cast<int>(i)) s = ranks.params[p];
      const HostTensor part =
          test::share_of_whole(ranks.mesh, want[i], s, ranks.mesh.at(static_cast<int64_t>(r)));
      if (part.numel() != have[r][i].numel())
        return cat("rank ", r, ", result ", i, " is ", have[r][i].type, ", not ", part.type);
      for (int64_t k = 0; k < part.numel(); ++k)
        if (part.at(k) != have[r][i].at(k))
          return cat("rank ", r, ", result ", i, ", element ", k, " is ", have[r][i].at(k),
                     ", not ", part.at(k));
    }
  return have.size() == static_cast<size_t>(ranks.mesh.n_ranks()) ? "" : "it did not run";
}

// Products, rows of tables, gathers, transpositions, sums and largest elements.
FuncId products(Module& m, uint64_t seed) {
  Builder b(m, "products");
  const Var x = b.param("x", {F, {8, 12}}), w = b.param("w", {F, {12, 16}}, Role::kWeight);
  const Var u = b.param("u", {F, {16, 12}}, Role::kWeight);
  const Var table = b.param("table", {F, {8, 12}}, Role::kWeight);
  const Var ids = b.param("ids", {I, {8}});
  Var h = x + embedding(table, ids);
  if (seed % 2) h = h - gather(table, ids, 0);
  const Var y = matmul(relu(matmul(h, w)), u);
  const Var z = permute(reshape(y, {2, 4, 12}), {1, 0, 2});
  b.result("z", z), b.result("most", reduce_max(z, {0, 2}));
  b.result("sum", reduce_sum(y, {0}));
  if (seed % 3 == 0) b.result("rows", matmul(permute(h, {1, 0}), y));
  return *b.finish_into_module();
}

TEST(Annotated, ShardedIsWhole) {
  std::map<std::string, int> exchanges;
  int n_ran = 0, n_moved = 0;
  test::Sweep sweep(120);
  for (uint64_t seed = 0; sweep.next(seed);) {
    for (const Mode mode : {Mode::kFast, Mode::kExact}) {
      std::mt19937_64 rng(seed);
      auto m = std::make_shared<Module>();
      FuncId f = 0;
      if (seed % 2) {
        testing::RandomGraphOptions o;
        o.is_exact = true, o.is_symbolic = false, o.has_narrow = false;
        const auto made = testing::RandomGraph(*m, seed, o).build();
        if (!made.ok()) continue;
        f = *made;
      } else {
        f = products(*m, seed / 2);
      }
      m->mesh = testing::random_mesh(rng, 8);
      testing::annotate_some((*m)[f], m->mesh, rng, 1 + seed % 4);
      const auto in = integers((*m)[f], seed);
      const auto want = *interpret(*m, (*m)[f], in);
      const std::string text = to_text(*m);
      SCOPED_TRACE(
          cat("seed ", seed, ", mode ", mode == Mode::kFast ? "fast" : "exact", "\n", text));
      const Module before = *m;
      const ShardOptions so{
          m->mesh, std::vector<Sharding>((*m)[f].params.size(), replicated(m->mesh)), mode};
      const auto ranks = compile_ranks(m, f, so, options_of(mode));
      ASSERT_TRUE(ranks.ok()) << ranks.error().to_string();
      ASSERT_EQ(compare(before, f, *ranks, in, want), "");
      ++n_ran;
      for (ValueId v = 0; v < ranks->sharded.made.size(); ++v)
        n_moved += !(ranks->sharded.made[v] == ranks->sharded.values[v]);
      for (const Step& s : ranks->plans[0]->steps)
        if (s.op->collective && s.ends < 0) ++exchanges[std::string(s.op->name)];
    }
  }
  EXPECT_GT(n_ran, 150);
  EXPECT_GT(n_moved, 100);
  for (const char* op : {"all_gather", "all_reduce", "reduce_scatter", "all_to_all"})
    EXPECT_GT(exchanges[op], 5) << op;
}

// A head that reads the embedding's table, and the table's gradient of both.
FuncId tied(Module& m, DType dtype) {
  Builder b(m, "tied");
  const Var table = b.param("table", {dtype, {24, 8}}, Role::kWeight);
  const Var tokens = b.param("tokens", {I, {4, 6}}), targets = b.param("targets", {I, {4, 6}});
  const Var x = embedding(table, tokens);
  const Var hidden = tanh(x * 2.0) + gather(table, targets, 0);
  CrossEntropyOptions o;
  o.ignore_index = 3;
  const Var loss = cross_entropy_loss(hidden, table, targets, o);
  const Var weights[] = {table};
  b.result("loss", loss), b.result("hidden", hidden), b.result("dtable", grad(loss, weights)[0]);
  return *b.finish_into_module();
}
std::vector<HostTensor> tied_inputs(const Function& f) {
  std::vector<HostTensor> in;
  for (const Param& p : f.params) {
    HostTensor t(f.type(p.value));
    for (int64_t i = 0; i < t.numel(); ++i) {
      const double u = philox_uniform(7, in.size(), static_cast<uint64_t>(i));
      // Ids below and above the table, too: they select nothing on any rank.
      t.put(i, is_float(t.type.dtype) ? 2 * u - 1 : std::floor(u * 28) - 2);
    }
    in.push_back(std::move(t));
  }
  return in;
}
CompiledRanks compile_tied(const char* mesh, Mode mode, const std::shared_ptr<Module>& m,
                           bool is_cut) {
  const FuncId f = tied(*m, F);
  m->mesh = *mesh_from_text(mesh);
  ShardOptions so{m->mesh, std::vector<Sharding>(3, replicated(m->mesh)), mode};
  const int tp = m->mesh.find("tp"), dp = m->mesh.find("dp");
  if (is_cut && tp >= 0) so.params[0][static_cast<size_t>(tp)] = AxisSharding::split(0);
  for (const size_t p : {1, 2})
    if (dp >= 0) so.params[p][static_cast<size_t>(dp)] = AxisSharding::split(0);
  return *compile_ranks(m, f, so, options_of(mode));
}

double largest(const HostTensor& t) {
  double most = 0;
  for (int64_t i = 0; i < t.numel(); ++i) most = std::max(most, std::fabs(t.at(i)));
  return most;
}
double distance(const HostTensor& a, const HostTensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.numel(); ++i) most = std::max(most, std::fabs(a.at(i) - b.at(i)));
  return most;
}

// Nobody shifts an id for them: the step is given all ids, and each rank finds its own rows.
TEST(CutTable, EveryOpCountsFromItsFirstRow) {
  Module whole;
  const FuncId f = tied(whole, F);
  const auto in = tied_inputs(whole[f]);
  const auto want = *interpret(whole, whole[f], in);
  const auto naive = *interpret(whole, whole[f], in, Arithmetic::kNaive);
  for (const char* mesh : {"tp=2", "tp=4", "tp=8", "dp=2,tp=3", "tp=3,dp=2"}) {
    SCOPED_TRACE(mesh);
    auto m = std::make_shared<Module>();
    const CompiledRanks ranks = compile_tied(mesh, Mode::kFast, m, true);
    const Mesh& on = ranks.mesh;
    const auto have = test::run_ranks(ranks, in);
    ASSERT_EQ(static_cast<int64_t>(have.size()), on.n_ranks());
    for (const auto& results : have)
      for (size_t i = 0; i < want.size(); ++i)
        // Two units in the last place of the largest: ranks join their log-sum-exps, and then their
        // parts of a sum, each of which rounds once more than one rank does.
        EXPECT_LE(distance(results[i], want[i]),
                  2 * distance(naive[i], want[i]) + std::ldexp(largest(want[i]), -22))
            << whole[f].results[i].name;
    // All three were cut along the table's rows, forward and backward; nobody holds all of it but
    // for the result that is asked for.
    const int tp = on.find("tp");
    std::set<std::string> cut;
    for (NodeId n = 0; n < (*m)[f].nodes.size(); ++n)
      if (ranks.sharded.nodes[n][static_cast<size_t>(tp)].kind == AxisCut::kRows)
        cut.insert(std::string((*m)[f].nodes[n].op->name));
    EXPECT_EQ(cut, (std::set<std::string>{"embedding", "gather", "linear_cross_entropy",
                                          "linear_cross_entropy_bwd"}));
    for (const Step& s : ranks.plans[0]->steps)
      if (s.op->name == "all_gather")
        EXPECT_TRUE(s.attrs.str("axis") != "tp" || s.phase == Phase::kBackward)
            << cat(s.in[0].type);
    EXPECT_TRUE(check_shardings(*m, (*m)[f], ranks.sharded).ok());
  }
}

// Sums of rows in another order have other bits: exact gathers the table and has those of one rank.
TEST(CutTable, ExactHasTheBitsOfOneRank) {
  auto one_module = std::make_shared<Module>(), many_module = std::make_shared<Module>();
  const CompiledRanks one = compile_tied("", Mode::kExact, one_module, true);
  const CompiledRanks many = compile_tied("dp=2,tp=4", Mode::kExact, many_module, true);
  const auto in = tied_inputs((*one_module)[0]);
  const auto want = test::run_ranks(one, in)[0];
  for (const auto& results : test::run_ranks(many, in))
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(results[i].bytes, want[i].bytes) << i;
}

// Ranks that differ in nothing share a plan, those that count from another row do not.
TEST(Ranks, ThatHashAlikeShareAPlan) {
  for (const auto& [mesh, is_cut, n_plans] :
       {std::tuple("dp=4", false, size_t{1}), std::tuple("tp=4", true, size_t{4}),
        std::tuple("dp=2,tp=2", true, size_t{2})}) {
    auto m = std::make_shared<Module>();
    const CompiledRanks ranks = compile_tied(mesh, Mode::kFast, m, is_cut);
    std::set<const Plan*> plans;
    for (const auto& p : ranks.plans) plans.insert(p.get());
    EXPECT_EQ(plans.size(), n_plans) << mesh;
    EXPECT_EQ(ranks.functions.size(), ranks.plans.size());
  }
}

// The step that was cut says of every value where it lies, and reads back so.
TEST(Ranks, TheStepSaysWhereItsValuesLie) {
  auto m = std::make_shared<Module>();
  const CompiledRanks ranks = compile_tied("dp=2,tp=4", Mode::kFast, m, true);
  const std::string text = to_text(module_of(*m, 0));
  EXPECT_EQ(text.rfind("mesh dp=2,tp=4\n", 0), 0U) << text;
  const auto again = module_from_text(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)[0].shardings, ranks.sharded.values);
  EXPECT_NE(text.find("\"table\" f32[24,8] [tp:0]"), std::string::npos) << text;
  EXPECT_NE(text.find("f32[4,6] [dp:0, tp:lse], f32[4,6] [dp:0, tp:+]"), std::string::npos) << text;
}

// The collectives that ranks execute together are compared, by the lines when they are compiled and
// by a hash before they begin; each of op, group, dtype, bytes and order is planted.
TEST(Collectives, WhatIsPlantedIsCaught) {
  auto m = std::make_shared<Module>();
  const CompiledRanks ranks = compile_tied("dp=2,tp=2", Mode::kFast, m, true);
  ASSERT_TRUE(compare_collectives(ranks.mesh, ranks.plans).ok());
  RankGroup group(ranks.mesh);
  const std::vector<CompiledRanks> whole = {ranks};
  ASSERT_TRUE(agree_on_collectives(group, whole).ok());
  std::vector<size_t> at;
  for (size_t i = 0; i < ranks.plans[0]->steps.size(); ++i)
    if (ranks.plans[0]->steps[i].op->collective) at.push_back(i);
  ASSERT_GE(at.size(), 4U);
  using Fault = void (*)(Plan&, const std::vector<size_t>&);
  const std::pair<const char*, Fault> faults[] = {
      {"another op",
       [](Plan& p, const auto& i) {
         Step& s = p.steps[i[1]];
         s.op = s.op == &all_reduce_op ? &all_gather_op : &all_reduce_op;
       }},
      {"another group",
       [](Plan& p, const auto& i) {
         Attrs& a = p.steps[i[0]].attrs;
         a.set("axis", std::string(a.str("axis") == "dp" ? "tp" : "dp"));
       }},
      {"another size of it",
       [](Plan& p, const auto& i) { p.steps[i[0]].attrs.set("ranks", int64_t{4}); }},
      {"another dtype",
       [](Plan& p, const auto& i) {
         Type& t = p.steps[i[0]].in[0].type;
         t = {DType::kBF16, {t.shape.numel() * 2}};
       }},
      {"more bytes", [](Plan& p, const auto& i) { p.steps[i[2]].in[0].type.shape.insert(0, 2); }},
      {"one less",
       [](Plan& p, const auto& i) {
         p.steps.erase(p.steps.begin() + static_cast<std::ptrdiff_t>(i.back()));
       }},
      {"another order", [](Plan& p, const auto& i) {
         size_t k = 1;
         while (p.steps[i[k]].op == p.steps[i[0]].op &&
                p.steps[i[k]].in[0].type == p.steps[i[0]].in[0].type)
           ++k;
         std::swap(p.steps[i[0]], p.steps[i[k]]);
       }}};
  for (const size_t rank : {1, 3})
    for (const auto& [name, plant] : faults) {
      SCOPED_TRACE(cat(name, " on rank ", rank));
      CompiledRanks broken = ranks;
      auto plan = std::make_shared<Plan>(*ranks.plans[rank]);
      plant(*plan, at);
      broken.plans[rank] = plan;
      const Status by_line = compare_collectives(broken.mesh, broken.plans);
      ASSERT_FALSE(by_line.ok());
      EXPECT_NE(by_line.error().message.find(cat("ranks 0 and ", rank)), std::string::npos)
          << by_line.error().message;
      EXPECT_NE(collectives_hash(*plan), collectives_hash(*ranks.plans[rank]));
      const std::vector<CompiledRanks> all = {ranks, broken};
      const Status by_hash = agree_on_collectives(group, all);
      ASSERT_FALSE(by_hash.ok());
      // Said by the rank or by another one of its axis.
      const std::string& said = by_hash.error().message;
      EXPECT_TRUE(said.find(cat("ranks ", rank, " and ")) != std::string::npos ||
                  said.find(cat(" and ", rank, " of dp=2,tp=2")) != std::string::npos)
          << said;
      EXPECT_NE(said.find("have other collectives"), std::string::npos) << said;
    }
}

}  // namespace
}  // namespace tegula
