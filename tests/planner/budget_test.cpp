// Tests what a budget buys, against the tables of the papers; devices of the user's own.
#include "tegula/planner/budget.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/planner/answer.h"

namespace tegula::planner {
namespace {

// Hoffmann et al. 2022, table 3: parameters, FLOPs, tokens. The rule of 20 tokens is a rounding of
// it.
TEST(Budget, TableOfOptima) {
  const double rows[][3] = {{400e6, 1.92e19, 8.0e9},   {1e9, 1.21e20, 20.2e9},
                            {10e9, 1.23e22, 205.1e9},  {67e9, 5.76e23, 1.5e12},
                            {175e9, 3.85e24, 3.7e12},  {280e9, 9.90e24, 5.9e12},
                            {520e9, 3.43e25, 11.0e12}, {1e12, 1.27e26, 21.2e12}};
  for (const auto& [params, flops, tokens] : rows) {
    const Optimum o = chinchilla(flops);
    EXPECT_NEAR(o.params / params, 1, 0.07) << params;
    EXPECT_NEAR(o.tokens / tokens, 1, 0.08) << params;
    EXPECT_DOUBLE_EQ(6 * o.params * o.tokens, flops);
  }
  // Gopher's budget is Chinchilla: 70 billion and 1.4 trillion.
  EXPECT_NEAR(chinchilla(5.76e23).params, 70e9, 1e9);
  EXPECT_NEAR(chinchilla(5.76e23).tokens, 1.4e12, 0.02e12);
}

TEST(Budget, TheClosedFormIsTheLeastLoss) {
  for (const double flops : {1e20, 5.76e23, 1e26}) {
    const Optimum o = chinchilla_by_loss(flops);
    EXPECT_NEAR(6 * o.params * o.tokens, flops, 1e-9 * flops);
    const double least = predicted_loss(o.params, o.tokens);
    for (const double n : {0.5, 0.8, 1.25, 2.0})
      EXPECT_GT(predicted_loss(n * o.params, o.tokens / n), least);
  }
  // There, section 3.3: the losses of Gopher (280 B, 300 GT) and of Chinchilla (70 B, 1.4 TT).
  EXPECT_NEAR(predicted_loss(280e9, 300e9), 1.993, 0.001);
  EXPECT_NEAR(predicted_loss(70e9, 1.4e12), 1.936, 0.001);
}

TEST(Budget, CriticalBatchGrowsAsTheLossFalls) {
  EXPECT_DOUBLE_EQ(critical_batch_tokens(1), 2e8);
  EXPECT_GT(critical_batch_tokens(2), critical_batch_tokens(3));
  EXPECT_NEAR(critical_batch_tokens(4) / critical_batch_tokens(2), std::pow(0.5, 1 / 0.21), 1e-12);
}

TEST(Sheets, ADeviceOfOnesOwn) {
  Question q;
  q.model = "llama3-8b", q.gpus = "8xmine";
  q.devices = {{"mine", "h100", {{"memory-gb", 40}, {"devices-per-node", 4}}}};
  const auto a = answer(q);
  ASSERT_TRUE(a.ok()) << a.error().message;
  EXPECT_EQ(a->cluster->device.memory_bytes, 40e9);
  EXPECT_EQ(a->cluster->device.devices_per_node, 4);
  EXPECT_EQ(a->cluster->device.peak(Number::kBf16), 989e12);
  for (const StepPrice& p : a->found.best) EXPECT_LE(p.peak_bytes(), 0.95 * 40e9);
  for (const auto& [name, value, word] : {std::tuple{"memry-gb", 40.0, "memory-gb"},
                                          {"memory-gb", 0.0, "above 0"},
                                          {"devices-per-node", 2.5, "number of devices"}}) {
    q.devices[0].numbers = {{name, value}};
    const auto bad = answer(q);
    ASSERT_FALSE(bad.ok());
    EXPECT_NE(bad.error().message.find(word), std::string::npos) << bad.error().message;
  }
  q.devices = {{"mine", "h1000", {}}};
  EXPECT_FALSE(answer(q).ok());
}

}  // namespace
}  // namespace tegula::planner
