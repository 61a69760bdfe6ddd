// Bounded symbols end to end: one plan, made at the bounds, runs at any extents with the bits and
// FLOPs of a plan made for just that size.
#include <gtest/gtest.h>

#include <cmath>

#include "tegula/models/model.h"
#include "tegula/ops/autodiff.h"
#include "tegula/ops/common/regions.h"
#include "tegula/ops/conv.h"
#include "tegula/ops/math.h"
#include "tegula/runtime/compile.h"
#include "tests/common/random_graph.h"
#include "tests/common/run_plan.h"

namespace tegula {
namespace {

constexpr int64_t kVocabSize = 11, kDModel = 8;

struct Built {
  std::shared_ptr<Module> module;
  FuncId function = kNone;
  std::shared_ptr<const Plan> plan;
};

// Loss and gradients of a model on tokens [batch, seqlen].
Built build(const std::string& family, Dim batch, Dim seqlen, std::shared_ptr<Module> module,
            bool with_gradients, const char* passes) {
  ModelConfig config;
  config.type = family;
  config.vocab_size = kVocabSize, config.d_model = kDModel;
  config.n_layers = 1, config.n_heads = 2;
  config.max_seqlen = 6;
  EXPECT_TRUE(config.resolve().ok());
  Builder b(*module, "step");
  Context c(b, config);
  const Type t = {DType::kI32, {batch, seqlen}};
  const Var tokens = b.param("tokens", t), targets = b.param("targets", t);
  const Var loss = model_loss(c, **find_model(family), tokens, targets);
  b.result("loss", loss);
  if (with_gradients) {
    std::vector<Var> weights;
    for (const WeightSpec& w : c.weights()) weights.push_back(c.weight(w.name, w.type.shape));
    const auto grads = grad(loss, weights);
    for (size_t i = 0; i < grads.size(); ++i) b.result(cat("grad.", i), grads[i]);
  }
  Built out{module};
  auto f = b.finish_into_module();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  if (!f.ok()) return out;
  out.function = *f;
  CompileOptions o;
  o.plan.verify = true, o.passes.passes = passes;
  auto compiled = compile(module, *f, o);
  EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
  if (compiled.ok()) out.plan = compiled->plan;
  return out;
}

struct Ran {
  std::vector<HostTensor> results;
  int64_t flops = 0;
};

Ran run(const Plan& plan, std::span<const HostTensor> in, std::span<const int64_t> extents) {
  Ran r;
  r.results = test::run_plan(plan, in, extents, 1, &r.flops);
  return r;
}

class Symbols : public ::testing::TestWithParam<const char*> {};

TEST_P(Symbols, OnePlanForEveryBatchAndLength) {
  for (const char* passes : {"", "-loss_grads", "-fuse,-loss_grads"}) {
    auto m = std::make_shared<Module>();
    const Dim batch = m->add_symbol("batch", 4), seqlen = m->add_symbol("seqlen", 6);
    const Built any = build(GetParam(), batch, seqlen, m, true, passes);
    ASSERT_TRUE(any.plan);
    for (const auto& [b, s] : {std::pair{4, 6}, {1, 1}, {4, 1}, {1, 6}, {3, 5}, {2, 4}}) {
      SCOPED_TRACE(cat("batch ", b, ", seqlen ", s, ", passes \"", passes, "\""));
      const int64_t extents[] = {b, s};
      const Built one = build(GetParam(), b, s, std::make_shared<Module>(), true, passes);
      ASSERT_TRUE(one.plan);
      const auto in = test::random_inputs(*m, (*m)[any.function], 3, extents);
      const Ran have = run(*any.plan, in, extents), want = run(*one.plan, in, {});
      ASSERT_EQ(have.results.size(), want.results.size());
      for (size_t r = 0; r < want.results.size(); ++r)
        EXPECT_EQ(have.results[r].bytes, want.results[r].bytes) << any.plan->results[r].name;
      EXPECT_EQ(have.flops, flops_of(*m, (*m)[any.function], extents));
      EXPECT_EQ(want.flops, one.plan->flops());
      if (b == 1 || s == 1) continue;  // sizes of 1 are simplified away
      // A loss is joined with its gradient, so that logits are formed once, of constant sizes only.
      const int64_t saved = *passes == '\0' ? 2 * b * s * kVocabSize * kDModel : 0;
      EXPECT_EQ(have.flops, want.flops + saved);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Symbols, ::testing::Values("mlp", "gpt2", "llama", "lstm"),
                         [](const auto& p) { return std::string(p.param); });

// Random graphs with a symbolic leading dim, fused, at every extent.
TEST(Symbols, RandomGraphsAtEveryExtent) {
  int n_symbolic = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    auto m = std::make_shared<Module>();
    auto f = testing::RandomGraph(*m, seed).build();
    ASSERT_TRUE(f.ok());
    if (m->symbols.empty()) continue;
    ++n_symbolic;
    const Function before = (*m)[*f];
    CompileOptions o;
    o.plan.verify = true;
    auto compiled = compile(m, *f, o);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    for (int64_t n = 0; n <= m->symbols[0].bound; ++n) {
      // The same function with the symbol's size written in.
      const std::span extents(&n, 1);
      auto fixed = std::make_shared<Module>();
      fixed->functions = {before};
      for (Value& v : fixed->functions[0].values) v.type.shape = v.type.shape.at(extents);
      for (Node& node : fixed->functions[0].nodes) node.attrs = attrs_at(node.attrs, extents);
      auto constant = compile(fixed, 0, o);
      ASSERT_TRUE(constant.ok()) << constant.error().to_string();
      const auto in = testing::random_inputs(before, seed, extents);
      const Ran have = run(*compiled->plan, in, extents), want = run(*constant->plan, in, {});
      for (size_t r = 0; r < want.results.size(); ++r)
        for (int64_t i = 0; i < want.results[r].numel(); ++i) {
          const double x = have.results[r].at(i), y = want.results[r].at(i);
          ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y)))
              << "seed " << seed << " at " << n << ", result " << r << ": " << x << ", " << y;
        }
      if (n > 0)  // without rows not even what is done once is done
        EXPECT_EQ(have.flops, flops_of(*m, (*m)[*f], extents)) << "seed " << seed << " at " << n;
    }
  }
  EXPECT_GT(n_symbolic, 20);
}

// Compares what `make` writes over a symbolic n, and its gradient by the weights x: at every extent
// the bits of the same with a constant. Returns the extents that were refused.
template <class F>
std::vector<int64_t> refused_extents(int64_t bound, F&& make) {
  const auto built = [&](Dim n, std::shared_ptr<Module> m) {
    Builder b(*m, "f");
    const Var y = make(b, n);
    std::vector<int64_t> dims(static_cast<size_t>(y.rank()));
    for (size_t d = 0; d < dims.size(); ++d) dims[d] = static_cast<int64_t>(d);
    std::vector<Var> weights;
    for (const Param& p : b.function().params)
      if (p.role == Role::kWeight) weights.push_back(Var(&b, p.value));
    b.result("y", y);
    const auto g = grad(reduce_sum(y * y, dims), weights);
    for (size_t i = 0; i < g.size(); ++i) b.result(cat("dx", i), g[i]);
    auto f = b.finish_into_module();
    EXPECT_TRUE(f.ok()) << f.error().to_string();
    return f.ok() ? *f : kNone;
  };
  CompileOptions o;
  o.plan.verify = true, o.plan.target.n_threads = 2;
  auto m = std::make_shared<Module>();
  const FuncId f = built(m->add_symbol("n", bound), m);
  if (f == kNone) return {-1};
  const Module before = *m;
  auto any = compile(m, f, o);
  EXPECT_TRUE(any.ok()) << any.error().to_string();
  if (!any.ok()) return {-1};
  std::vector<int64_t> refused;
  for (int64_t n = 0; n <= bound; ++n) {
    SCOPED_TRACE(cat("at ", n));
    const int64_t extents[] = {n};
    std::vector<HostTensor> in;
    for (const Param& p : before[f].params)
      in.push_back(test::random_tensor(
          {before[f].type(p.value).dtype, before[f].type(p.value).shape.at(extents)}, 1));
    const auto have = test::try_run_plan(*any->plan, in, extents, 2);
    const auto naive = interpret(before, before[f], in, Arithmetic::kNaive, extents);
    EXPECT_EQ(have.ok(), naive.ok());
    if (!have.ok()) {
      EXPECT_NE(have.error().message.find(cat("extent ", n, " of n is outside")), std::string::npos)
          << have.error().message;
      refused.push_back(n);
      continue;
    }
    auto fixed = std::make_shared<Module>();
    const FuncId g = built(n, fixed);
    if (g == kNone) continue;
    const Module plain = *fixed;
    auto one = compile(fixed, g, o);
    EXPECT_TRUE(one.ok()) << one.error().to_string();
    if (!one.ok()) continue;
    const auto want = test::run_plan(*one->plan, in, {}, 2);
    const auto want_naive = interpret(plain, plain[g], in, Arithmetic::kNaive);
    for (size_t r = 0; r < want.size(); ++r) {
      EXPECT_EQ((*have)[r].bytes, want[r].bytes) << "result " << r;
      EXPECT_EQ((*naive)[r].bytes, (*want_naive)[r].bytes) << "result " << r << ", by reference";
    }
  }
  return refused;
}
using Extents = std::vector<int64_t>;
Var weight(Builder& b, Shape s) {
  return b.weight(cat("x", b.function().params.size()), {DType::kF32, s});
}
Dim plus(Dim n, int64_t c) { return *add(n, c); }

TEST(Symbols, GradientsOfSlices) {
  EXPECT_EQ(refused_extents(7,
                            [](Builder& b, Dim n) {
                              return slice(weight(b, {3, plus(n, 2)}), 1, 1, n);
                            }),
            Extents());
  EXPECT_EQ(refused_extents(7,
                            [](Builder& b, Dim n) {  // of a constant dim: hi is what is left
                              return slice(weight(b, {9, 2}), 0, 2, n);
                            }),
            Extents());
  EXPECT_EQ(refused_extents(7,
                            [](Builder& b, Dim n) {
                              return slice(weight(b, {9, 2}), 0, 8, n, -1);
                            }),
            Extents());
  EXPECT_EQ(refused_extents(
                4, [](Builder& b, Dim n) { return slice(weight(b, {*mul(n, 2)}), 0, 1, n, 2); }),
            Extents());
  // Elements 2 to 4 of n.
  EXPECT_EQ(refused_extents(7, [](Builder& b, Dim n) { return slice(weight(b, {n}), 0, 2, 3); }),
            Extents({0, 1, 2, 3, 4}));
}

TEST(Symbols, GradientsOfConcats) {
  EXPECT_EQ(refused_extents(5,
                            [](Builder& b, Dim n) {
                              const Var parts[] = {weight(b, {2, 3}), weight(b, {2, n}),
                                                   weight(b, {2, 4}), weight(b, {2, n})};
                              return concat(parts, 1);
                            }),
            Extents());
}

TEST(Symbols, ReshapesThatMoveElements) {
  for (const auto& [from, to] : {std::pair<Extents, Extents>{{-1, 2}, {2, -1}},
                                 {{2, -1}, {-2}},
                                 {{-2}, {2, -1}},
                                 {{3, -1, 2}, {3, 2, -1}},
                                 {{-1, 2, 3}, {-1, 3, 2}},
                                 {{2, -1, 3}, {-1, 6}},
                                 {{-1, 2, -1}, {2, -1, -1}}}) {
    SCOPED_TRACE(cat(from, " to ", to));
    const auto shape = [](const Extents& dims, Dim n) {
      Shape s;
      for (int64_t d : dims) s.push_back(d < 0 ? *mul(n, -d) : Dim(d));
      return s;
    };
    for (const int64_t bound : {1, 2, 5})
      for (const bool is_back : {false, true})
        EXPECT_EQ(refused_extents(bound,
                                  [&](Builder& b, Dim n) {
                                    return reshape(weight(b, shape(is_back ? to : from, n)),
                                                   shape(is_back ? from : to, n));
                                  }),
                  Extents())
            << bound << (is_back ? " back" : "");
  }
}

// A kernel of dense operands is not taken for what is dense only at n = 1 or at the bounds.
TEST(Symbols, SumsOverAPartOfAStride) {
  auto m = std::make_shared<Module>();
  m->symbols = {{"m", 3}, {"one", 1}};
  Builder b(*m, "f");
  const Dim n = Dim::of(0, 3), one = Dim::of(1, 1);
  b.result("y", reduce_sum(b.param("x", {DType::kF32, {n, one, n, 1}}), {0}));
  const FuncId f = *b.finish_into_module();
  const auto plan = compile(m, f, {})->plan;
  const int64_t extents[] = {2, 1};
  const HostTensor x = test::random_tensor({DType::kF32, {2, 1, 2, 1}}, 1);
  const auto y = test::run_plan(*plan, {&x, 1}, extents);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(float(y[0].at(i)), float(x.at(i)) + float(x.at(2 + i)));
}

TEST(Symbols, WindowsThatNoLongerFit) {
  EXPECT_EQ(refused_extents(7,
                            [](Builder& b, Dim n) {
                              return conv(weight(b, {1, 2, n}), weight(b, {3, 2, 3}), {});
                            }),
            Extents({0, 1, 2}));
  EXPECT_EQ(refused_extents(7,
                            [](Builder& b, Dim n) {
                              return max_pool(weight(b, {1, 2, n}), {2}, {});
                            }),
            Extents({0, 1}));
}

// Shorter rows may take larger tiles than those of the bound.
TEST(Symbols, WorkspacesDoForSmallerExtents) {
  for (int64_t columns : {9, 24, 40, 600})
    EXPECT_EQ(refused_extents(9,
                              [&](Builder& b, Dim n) {
                                const Var x = weight(b, {37, *add(columns - 9, n)});
                                return exp(x - reduce_max(x, {1}, true)) * x +
                                       broadcast(reduce_sum(x * x, {1}, true), x.shape());
                              })
                  .size(),
              0u);
}

TEST(Symbols, SymbolsThatNothingOrders) {
  Module m;
  const Dim n = m.add_symbol("n", 4), k = m.add_symbol("k", 4);
  Builder b(m, "f");
  b.result("y", slice(b.param("x", {DType::kF32, {n}}), 0, 0, k));
  const auto f = b.finish();
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.error().message.find("nothing says that they lie within it"), std::string::npos);
}

TEST(Symbols, ExtentsOutOfBoundsAreNamed) {
  auto m = std::make_shared<Module>();
  const Dim batch = m->add_symbol("batch", 4), seqlen = m->add_symbol("seqlen", 6);
  Builder b(*m, "f");
  b.result("y", sin(b.param("x", {DType::kF32, {batch, seqlen}})));
  const Plan plan = *make_plan(m, *b.finish_into_module(), {.verify = true});
  Rank rank(1);
  auto s = std::move(*Session::create(std::make_shared<Plan>(plan), rank));
  std::vector<float> x(24);
  ASSERT_TRUE(s->bind("x", x.data()).ok());
  auto message = [&](std::vector<int64_t> extents) {
    const auto st = s->run(extents);
    return st.ok() ? std::string() : st.error().message;
  };
  EXPECT_EQ(message({4, 6}), "");
  EXPECT_EQ(message({0, 6}), "");
  EXPECT_EQ(message({4, 7}), "extent 7 of seqlen is outside [0, 6]");
  EXPECT_EQ(message({5, 6}), "extent 5 of batch is outside [0, 4]");
  EXPECT_EQ(message({-1, 6}), "extent -1 of batch is outside [0, 4]");
  EXPECT_EQ(message({4}), "plan f has 2 symbols, got 1 extents");
  EXPECT_EQ(message({3, 2}), "");  // still usable
}

}  // namespace
}  // namespace tegula
