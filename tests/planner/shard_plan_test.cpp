// Sharding plans: propagation on the lectures' two-layer network, the exact choice against every
// choice there is, steps of models against what their ranks really send.
#include "tegula/planner/shard_plan.h"

#include <gtest/gtest.h>

#include "tegula/ops/math.h"
#include "tegula/train/ranks.h"
#include "tegula/train/step.h"

namespace tegula::planner {
namespace {

using Said = std::vector<std::vector<std::optional<AxisSharding>>>;

// y = relu(x·w1)·w2, with x [b, h], w1 [h, f], w2 [f, h].
struct Mlp {
  std::shared_ptr<Module> module = std::make_shared<Module>();
  FuncId id = kNone;
  Mlp(int64_t b, int64_t h, int64_t f) {
    Builder builder(*module, "mlp");
    const Var x = builder.param("x", {DType::kF32, {b, h}});
    const Var w1 = builder.weight("w1", {DType::kF32, {h, f}});
    const Var w2 = builder.weight("w2", {DType::kF32, {f, h}});
    builder.result("y", matmul(relu(matmul(x, w1)), w2));
    id = *builder.finish_into_module();
  }
  const Function& f() const { return (*module)[id]; }
};

MeshLinks links_of(std::string_view mesh, std::string_view device = "H100") {
  const Mesh m = *mesh_from_text(mesh);
  return {m, *parse_cluster(cat(m.n_ranks(), "x", device))};
}

ShardPlan propagated(const Mlp& mlp, const MeshLinks& links, std::string_view text) {
  Said said(3, std::vector<std::optional<AxisSharding>>(links.mesh().axes.size()));
  EXPECT_TRUE(annotate(mlp.f(), links.mesh(), text, said).ok());
  auto plan = plan_by_propagation(*mlp.module, mlp.f(), links, said);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return std::move(*plan);
}

TEST(ShardPlan, RowsOfAProductNeedNoMessage) {
  const Mlp mlp(64, 32, 128);
  const MeshLinks links = links_of("rows=4");
  const ShardPlan whole = propagated(mlp, links, "");
  const ShardPlan p = propagated(mlp, links, "x:0=rows");
  // The result alone is gathered, which no rank kept.
  EXPECT_EQ(p.exchanges.size(), 1U);
  EXPECT_EQ(p.exchanges.at("all_gather over rows").count, 1);
  EXPECT_EQ(p.exchanges.at("all_gather over rows").sent_bytes, 0.75 * 64 * 32 * 4);
  EXPECT_EQ(p.flops * 4, whole.flops);
  EXPECT_TRUE(whole.exchanges.empty());
  EXPECT_EQ(whole.uncut.size(), 1U);
}

TEST(ShardPlan, ColumnsThenRowsOfTheWeightsEndInOneSum) {
  const Mlp mlp(64, 32, 128);
  const MeshLinks links = links_of("cols=4");
  for (const char* text : {"w1:1=cols", "w2:0=cols", "w1:1=cols,w2:0=cols"}) {
    const ShardPlan p = propagated(mlp, links, text);  // forward, backward and both
    EXPECT_EQ(p.params[1], Sharding{AxisSharding::split(1)}) << text;
    EXPECT_EQ(p.params[2], Sharding{AxisSharding::split(0)}) << text;
    ASSERT_EQ(p.exchanges.size(), 1U) << text;
    EXPECT_EQ(p.exchanges.at("all_reduce over cols").count, 1);
    EXPECT_EQ(p.exchanges.at("all_reduce over cols").sent_bytes, 1.5 * 64 * 32 * 4);
  }
}

TEST(ShardPlan, TheReductionLoopLeavesSumsThatReluNeedsWhole) {
  const Mlp mlp(64, 32, 128);
  const ShardPlan p = propagated(mlp, links_of("k=4"), "x:1=k,w1:0=k");
  // The sum of x·w1 [64, 128] before relu.
  EXPECT_EQ(p.exchanges.at("all_reduce over k").sent_bytes, 1.5 * 64 * 128 * 4);
}

TEST(ShardPlan, TwoAxesCutOneProductInTwoDims) {
  const Mlp mlp(64, 32, 128);
  const MeshLinks links = links_of("i=2,j=4");
  const ShardPlan p = propagated(mlp, links, "x:0=i,w1:1=j");
  EXPECT_EQ(p.flops * 8, propagated(mlp, links, "").flops);
  EXPECT_EQ(p.exchanges.at("all_reduce over j").sent_bytes, 1.5 * 32 * 32 * 4);
}

// Every choice of strategies and of places for the weights, summed here.
double enumerated(const Mlp& mlp, const MeshLinks& links, const Said& said) {
  const Function& f = mlp.f();
  std::vector<std::vector<Strategy>> nodes;
  for (const Node& n : f.nodes) nodes.push_back(strategies_of(*mlp.module, f, n, links));
  const Mesh& mesh = links.mesh();
  std::vector<std::vector<Sharding>> places(3);
  for (size_t p = 0; p < 3; ++p) {
    std::vector<Sharding> all = {{}};
    for (size_t a = 0; a < mesh.axes.size(); ++a) {
      std::vector<Sharding> more;
      for (const Sharding& s : all)
        for (int d = -1; d < (p == 0 ? 0 : 2); ++d) {
          more.push_back(s);
          more.back().push_back(d < 0 ? AxisSharding{} : AxisSharding::split(d));
          if (p == 0 && said[0][a]) more.back().back() = *said[0][a];
        }
      all = more;
    }
    for (const Sharding& s : all)
      if (local_shape(mesh, f.type(f.params[p].value).shape, s).ok()) places[p].push_back(s);
  }
  std::map<std::string, double> ways;
  const auto seconds = [&](ValueId v, const Sharding& from, const Sharding& to) {
    const std::string key = cat(v, to_text(mesh, from), " to ", to_text(mesh, to));
    const auto known = ways.find(key);
    if (known != ways.end()) return known->second;
    const auto plan = plan_reshard(links, f.type(v), from, to);
    return ways[key] = plan.ok() ? plan->seconds : HUGE_VAL;
  };
  double best = HUGE_VAL;
  const ValueId x = f.params[0].value, w1 = f.params[1].value, w2 = f.params[2].value;
  const ValueId a = f.nodes[0].output(0), r = f.nodes[1].output(0), y = f.nodes[2].output(0);
  for (const Strategy& one : nodes[0])
    for (const Strategy& act : nodes[1]) {
      double front = one.seconds + act.seconds + seconds(x, places[0][0], one.in[0]) +
                     seconds(a, one.out[0], act.in[0]);
      double place = HUGE_VAL;
      for (const Sharding& s : places[1]) place = std::min(place, seconds(w1, s, one.in[1]));
      front += place;
      for (const Strategy& two : nodes[2]) {
        double sum = front + two.seconds + seconds(r, act.out[0], two.in[0]) +
                     seconds(y, two.out[0], replicated(mesh));
        place = HUGE_VAL;
        for (const Sharding& s : places[2]) place = std::min(place, seconds(w2, s, two.in[1]));
        best = std::min(best, sum + place);
      }
    }
  return best;
}

TEST(ShardPlan, SearchIsTheBestOfAllOnEverySmallCase) {
  int n = 0;
  for (const char* mesh : {"x=2", "x=4", "x=2,y=2", "x=2,y=4"})
    for (const char* device : {"H100", "A100-PCIe", "T4"})
      for (const auto& [b, h, w] : {std::tuple<int64_t, int64_t, int64_t>{64, 32, 128},
                                    {8192, 1024, 4096},
                                    {16, 4096, 16384},
                                    {65536, 256, 256}})
        for (const char* text : {"", "x:0=x"}) {
          const Mlp mlp(b, h, w);
          const MeshLinks links = links_of(mesh, device);
          Said said(3, std::vector<std::optional<AxisSharding>>(links.mesh().axes.size()));
          ASSERT_TRUE(annotate(mlp.f(), links.mesh(), text, said).ok());
          const auto plan = plan_by_search(*mlp.module, mlp.f(), links, said);
          ASSERT_TRUE(plan.ok()) << plan.error().message;
          EXPECT_TRUE(plan->is_exact);
          EXPECT_NEAR(plan->seconds() / enumerated(mlp, links, said), 1, 1e-9)
              << mesh << " " << device << " " << b << " " << text;
          ++n;
        }
  EXPECT_EQ(n, 96);
}

TEST(ShardPlan, ALimitOfMemoryIsMet) {
  const Mlp mlp(16, 1024, 4096);
  const MeshLinks links = links_of("x=4");
  const Said said(3, std::vector<std::optional<AxisSharding>>(1));
  const double bytes = 4.0 * (16 * 1024 + 2 * 1024 * 4096);
  const auto free = plan_by_search(*mlp.module, mlp.f(), links, said);
  const auto half = plan_by_search(*mlp.module, mlp.f(), links, said, 0.5 * bytes);
  ASSERT_TRUE(half.ok()) << half.error().message;
  EXPECT_LE(half->param_bytes, 0.5 * bytes);
  EXPECT_GE(half->seconds(), free->seconds() * (1 - 1e-12));
  EXPECT_FALSE(plan_by_search(*mlp.module, mlp.f(), links, said, 0.2 * bytes).ok());
}

struct Model {
  TrainConfig config;
  StepFunctions built;
  Model(const char* family, int64_t layers) {
    config.model.type = family, config.model.n_layers = layers, config.model.n_heads = 4;
    config.model.d_model = 64, config.model.max_seqlen = 16, config.model.vocab_size = 64;
    config.batch = 8;
    TEGULA_CHECK(config.model.resolve().ok(), "");
    built = *build_step_functions(config);
  }
  const Function& step() const { return (*built.module)[built.train_step]; }
};

// The two forms of saying it, and what the ranks that train really exchange.
TEST(ShardPlan, ModelsByNamesOfDims) {
  for (const char* family : {"gpt2", "llama"}) {
    const Model m(family, 2);
    const MeshLinks links = links_of("dp=2,tp=2");
    const auto named =
        layout_of_names(m.step(), m.config.model, links.mesh(), "batch=dp,heads=tp,ff=tp");
    ASSERT_TRUE(named.ok()) << named.error().message;
    const auto plan = plan_by_propagation(*m.built.module, m.step(), links, *named);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    // The names say of every parameter what training's own rule does.
    TrainConfig c = m.config;
    c.mesh = links.mesh();
    const auto trained = param_shardings(c, m.step());
    ASSERT_TRUE(trained.ok()) << trained.error().message;
    for (size_t p = 0; p < m.step().params.size(); ++p)
      EXPECT_EQ(to_text(links.mesh(), plan->params[p]), to_text(links.mesh(), (*trained)[p]))
          << family << " " << m.step().params[p].name;
    // Megatron's four sums of activations a layer, two layers, over tp.
    const double activation = 4.0 * 4 * 16 * 64;
    const Exchange& tp = plan->exchanges.at("all_reduce over tp");
    EXPECT_GE(tp.sent_bytes, 8 * activation) << family;
    EXPECT_LT(tp.sent_bytes, 8 * activation + 4096) << family;
    for (const auto& [what, flops] : plan->uncut)
      EXPECT_NE(what.find("cross_entropy"), std::string::npos) << family << " " << what;
  }
}

TEST(ShardPlan, WhatCannotBeSaidIsRefused) {
  const Model m("gpt2", 1);
  const Mesh mesh = *mesh_from_text("rows=2");
  for (const auto& [layout, word] : {std::pair{"width=rows", "no dim is called width"},
                                     {"batch=cols", "no axis cols"},
                                     {"batch", "NAME=AXIS"},
                                     {"vocab=rows,hidden=rows", "twice"}}) {
    const auto r = layout_of_names(m.step(), m.config.model, mesh, layout);
    ASSERT_FALSE(r.ok()) << layout;
    EXPECT_NE(r.error().message.find(word), std::string::npos) << r.error().message;
  }
  Said said(m.step().params.size(), std::vector<std::optional<AxisSharding>>(1));
  for (const auto& [text, word] : {std::pair{".c_fcc.weight:1=rows", "no parameter ends with"},
                                   {".c_fc.weight=rows", "NAME:DIM"},
                                   {".c_fc.weight:7=rows", "no dim 7"}}) {
    const Status s = annotate(m.step(), mesh, text, said);
    ASSERT_FALSE(s.ok()) << text;
    EXPECT_NE(s.error().message.find(word), std::string::npos) << s.error().message;
  }
}

}  // namespace
}  // namespace tegula::planner
