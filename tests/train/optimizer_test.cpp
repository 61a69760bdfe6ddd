// One update of each optimizer against its formula in plain double loops; the schedule at its
// corners.
#include "tegula/train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/base/philox.h"
#include "tegula/runtime/compile.h"
#include "tegula/runtime/session.h"
#include "tegula/train/config.h"

namespace tegula {
namespace {

constexpr int kRows = 3, kColumns = 5, kN = kRows * kColumns;

// A matrix, which decays, and a vector, which does not; their gradients are the parameter g.
struct Update {
  Rank rank{1};
  Store store{rank};
  std::unique_ptr<Session> session;
  std::vector<float> g = std::vector<float>(kN + kColumns);
  float lr = 0, c1 = 0, c2 = 0;

  explicit Update(const OptimizerConfig& config) {
    auto module = std::make_shared<Module>();
    Builder b(*module, "update");
    const StepScalars scalars = StepScalars::params(b);
    const std::vector<WeightSpec> specs = {
        {.name = "w", .type = {DType::kF32, {kRows, kColumns}}, .decays = true},
        {.name = "v", .type = {DType::kF32, {kColumns}}}};
    std::vector<Var> weights, grads;
    for (const WeightSpec& s : specs) {
      weights.push_back(b.weight(s.name, s.type));
      grads.push_back(b.param("g." + s.name, s.type));
    }
    b.result("grad_norm", apply_optimizer(b, config, scalars, specs, weights, grads));
    const auto f = b.finish_into_module();
    EXPECT_TRUE(f.ok()) << f.error().to_string();
    const auto compiled = compile(module, *f, {});
    EXPECT_TRUE(compiled.ok()) << compiled.error().to_string();
    session = std::move(*Session::create(compiled->plan, rank));
    EXPECT_TRUE(session->bind_store(store).ok());
    EXPECT_TRUE(session->bind("g.w", g.data()).ok());
    EXPECT_TRUE(session->bind("g.v", g.data() + kN).ok());
    for (auto [name, scalar] : {std::pair{"lr", &lr}, {"c1", &c1}, {"c2", &c2}})
      if (session->plan().find_param(name) >= 0) EXPECT_TRUE(session->bind(name, scalar).ok());
  }
  float weight(int i) {
    return i < kN ? store.find("w").as<float>()[i] : store.find("v").as<float>()[i - kN];
  }
  void set_weight(int i, float v) {
    (i < kN ? store.find("w").as<float>()[i] : store.find("v").as<float>()[i - kN]) = v;
  }
};

// The formulas of optimizer.h, an element at a time.
void expect_formula(const OptimizerConfig& c) {
  Update u(c);
  std::vector<double> w(kN + kColumns), m(w.size()), v(w.size());
  for (size_t i = 0; i < w.size(); ++i) {
    u.set_weight(static_cast<int>(i), philox_uniform(1, 1, i) - 0.5f);
    w[i] = u.weight(static_cast<int>(i));
  }
  for (int t = 1; t <= 5; ++t) {
    double norm = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      u.g[i] = philox_uniform(2, static_cast<uint64_t>(t), i) * 4 - 2;
      norm += static_cast<double>(u.g[i]) * u.g[i];
    }
    norm = std::sqrt(norm);
    const double lr = 0.1 / t, c1 = 1 / (1 - std::pow(c.beta1, t)),
                 c2 = 1 / (1 - std::pow(c.beta2, t));
    u.lr = static_cast<float>(lr), u.c1 = static_cast<float>(c1), u.c2 = static_cast<float>(c2);
    ASSERT_TRUE(u.session->run().ok());
    EXPECT_NEAR(u.session->result("grad_norm").as<float>()[0], norm, 1e-6 * norm);
    const double scale = c.clip > 0 ? std::min(1.0, c.clip / norm) : 1;
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = u.g[i] * scale;
      double direction = g;
      if (c.name == "adamw") {
        m[i] = c.beta1 * m[i] + (1 - c.beta1) * g;
        v[i] = c.beta2 * v[i] + (1 - c.beta2) * g * g;
        direction = m[i] * c1 / (std::sqrt(v[i] * c2) + c.eps);
      } else if (c.name == "momentum") {
        direction = m[i] = c.beta1 * m[i] + g;
      }
      if (i < kN) direction += c.weight_decay * w[i];
      w[i] -= lr * direction;
      // About ten roundings a step, each of half a unit in the last place of values up to 4.
      EXPECT_NEAR(u.weight(static_cast<int>(i)), w[i], t * 10 * 4 * 0x1p-24) << c.name << " " << i;
    }
  }
}

TEST(Optimizer, UpdatesByTheFormula) {
  for (const char* name : {"adamw", "momentum", "sgd"})
    for (double clip : {0.0, 1.0, 1e6})
      for (double decay : {0.0, 0.1})
        for (double eps : {1e-8, 1e-2}) {  // the second is large enough to be seen
          OptimizerConfig c;
          c.name = name, c.clip = clip, c.weight_decay = decay, c.beta2 = 0.95, c.eps = eps;
          expect_formula(c);
        }
}

TEST(Optimizer, AGradientThatIsNotFiniteChangesNothing) {
  for (const char* name : {"adamw", "momentum", "sgd"}) {
    OptimizerConfig c;
    c.name = name;
    Update u(c);
    for (int i = 0; i < kN + kColumns; ++i) u.set_weight(i, 1);
    u.lr = u.c1 = u.c2 = 1;
    for (float bad : {NAN, INFINITY, 3e38f}) {
      std::fill(u.g.begin(), u.g.end(), 0.5f);
      u.g[7] = bad;
      ASSERT_TRUE(u.session->run().ok());
      for (const auto& [key, entry] : u.store)
        for (int64_t i = 0; i < entry.ref.numel(); ++i)
          ASSERT_EQ(entry.ref.as<float>()[i], key == "w" || key == "v" ? 1 : 0) << key << bad;
    }
  }
}

TEST(Schedule, WarmsUpThenFallsAlongACosine) {
  TrainConfig c;
  c.lr = 1, c.min_lr = 0.1, c.warmup = 4, c.steps = 24;
  EXPECT_DOUBLE_EQ(learning_rate(c, 0), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(c, 3), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate(c, 4), 1);
  EXPECT_DOUBLE_EQ(learning_rate(c, 14), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(c, 24), 0.1);
  for (int64_t step = 4; step < 24; ++step)
    EXPECT_GT(learning_rate(c, step), learning_rate(c, step + 1));
}

}  // namespace
}  // namespace tegula
