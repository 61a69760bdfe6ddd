// A training step over the ranks of a mesh: in f32 close to the step of one rank, with what each
// rank holds, sends and computes as planned.
#include "tegula/train/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tegula/train/step.h"
#include "tests/train/on_ranks.h"

namespace tegula {
namespace {

class Ranks : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Ranks, FastIsCloseToOneRank) {
  const auto [model, mesh] = GetParam();
  const TrainConfig c = tiny(model, "fast");
  const Ran one = run_on(c, ""), many = run_on(c, mesh);
  ASSERT_EQ(one.losses.size(), kSteps);
  ASSERT_EQ(many.losses.size(), kSteps);
  for (size_t i = 0; i < kSteps; ++i) {
    EXPECT_NEAR(many.losses[i], one.losses[i], 1e-5 * one.losses[i]);
    EXPECT_NEAR(many.norms[i], one.norms[i], 1e-4 * one.norms[i]);
  }
  // Adam's first steps are as large as the learning rate, whatever the gradient: a sign that
  // flips, of a gradient that is almost zero, moves a weight by as much.
  EXPECT_LT(largest_difference(one, many), 2e-3) << model << " " << mesh;
}

TEST_P(Ranks, ExactHasTheBitsOfOneRank) {
  const auto [model, mesh] = GetParam();
  for (const char* dtype : {"f32", "bf16"}) {
    TrainConfig c = tiny(model, "exact");
    c.dtype = dtype;
    expect_bits_of_one_rank(c, mesh);
  }
}

// Optimizer state and sums of gradients in shares: less memory, the same bits.
TEST_P(Ranks, ZeroKeepsBitsAndTakesLessMemory) {
  const auto [model, mesh] = GetParam();
  TrainConfig c = tiny(model, "exact");
  const Mesh m = in_training_order(*mesh_from_text(mesh));
  if (m.find("dp") < 0) GTEST_SKIP() << "state is split over dp alone";
  const Ran one = run_on(c, "");
  const auto state_bytes = [&](int64_t zero) {
    c.mesh = m, c.zero = zero;
    const StepFunctions f = *build_step_functions(c);
    const auto r = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
    return step_cost(c, plans_of_rank({&r, 1}, 0))->state_bytes;
  };
  // Two of the three f32 tensors a weight are split by dp's ranks, but for what it does not divide.
  const auto n = static_cast<double>(m.axes[static_cast<size_t>(m.find("dp"))].size);
  EXPECT_LE(static_cast<double>(state_bytes(1)),
            static_cast<double>(state_bytes(0)) * (1 + 2 / n) / 3 * 1.05);
  // In 3 all three are.
  EXPECT_LE(static_cast<double>(state_bytes(3)), static_cast<double>(state_bytes(0)) / n * 1.05);
  for (const int64_t zero : {1, 3}) {
    c.zero = zero;
    const Ran many = run_on(c, mesh);
    EXPECT_EQ(one.losses, many.losses) << zero;
    EXPECT_EQ(one.norms, many.norms) << zero;
    for (const auto& [name, w] : one.weights)
      EXPECT_EQ(differing(w, many.weights.at(name)), 0) << zero << " " << name;
  }
}

int64_t product_flops(const Plan& plan) {
  int64_t n = 0;
  for (const Step& s : plan.steps)
    if (s.op->precision == Precision::kLow) n += s.flops;
  return n;
}

// A computation that all ranks repeat is no parallelism: over the ranks, products cost what they
// cost one, but for what is listed as uncut.
TEST_P(Ranks, ShareTheProductsOut) {
  const auto [model, mesh] = GetParam();
  for (const char* mode : {"fast", "exact"}) {
    TrainConfig c = tiny(model, mode);
    c.model.d_model = 512, c.model.d_ff = 0, c.model.n_heads = 8, c.model.head_dim = 0;
    c.model.n_kv_heads = std::string(model) == "gpt2" || std::string(model) == "moe" ? 0 : 4;
    c.model.max_seqlen = 64, c.model.vocab_size = 512;
    ASSERT_TRUE(c.model.resolve().ok());
    const auto flops_on = [&](const char* text) {
      c.mesh = in_training_order(*mesh_from_text(text));
      const StepFunctions f = *build_step_functions(c);
      const auto r = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
      int64_t all = 0, alike = 0;
      for (const auto& plan : r.plans) all += product_flops(*plan);
      for (const Uncut& u : r.sharded.uncut) alike += u.flops * (r.mesh.axes[u.axis].size - 1);
      return std::pair(static_cast<double>(all), static_cast<double>(alike));
    };
    const double one = flops_on("").first;
    const auto [many, alike] = flops_on(mesh);
    EXPECT_LE(many - alike, 1.05 * one) << model << " " << mesh << " " << mode;
    EXPECT_LE(many, 1.25 * one) << model << " " << mesh << " " << mode;
  }
}

// In fast, rows of buckets that no token filled do not travel.
TEST(Mesh, EmptyRowsOfExpertsStayAtHome) {
  TrainConfig c = tiny("moe", "fast");
  c.model.max_seqlen = 256, c.model.capacity_factor = 2, c.model.d_model = 64, c.model.d_ff = 0;
  c.model.head_dim = 0;
  ASSERT_TRUE(c.model.resolve().ok());
  const Ran one = run_on(c, ""), ragged = run_on(c, "ep=4");
  for (size_t i = 0; i < kSteps; ++i)
    EXPECT_NEAR(ragged.losses[i], one.losses[i], 1e-5 * one.losses[i]);
  EXPECT_LT(largest_difference(one, ragged), 2e-3);
  // Half of all rows are empty, at least; 3/4 would go elsewhere, so 1/3 of these stay at home. The
  // lengths of all are sent.
  const StepFunctions f = *build_step_functions(c);
  c.mesh = *mesh_from_text("ep=4");
  const auto ranks = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
  int64_t n_ragged = 0, bound = 0, lengths = 0;
  for (const Step& s : ranks.plans[0]->steps) {
    if (!s.op->name.starts_with("all_to_all")) continue;
    const bool is_ragged = s.op->name == "all_to_all_ragged";
    n_ragged += is_ragged;
    (is_ragged ? bound : lengths) += 3 * s.in[0].type.bytes();  // of 4 parts each goes elsewhere
  }
  EXPECT_EQ(n_ragged, 4 * c.model.n_layers);
  EXPECT_GT(lengths, 0);
  EXPECT_LE(ragged.sent_bytes, ragged.planned_bytes - kSteps * bound / 3);
  EXPECT_GT(bound / 3, lengths);
}

TEST(Mesh, OfMoreRanksThanAKernelJoinsIsRefused) {
  TrainConfig c = tiny("gpt2", "fast");
  c.batch = 128, c.mesh = *mesh_from_text("dp=128");
  const StepFunctions f = *build_step_functions(c);
  const auto r = compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("at most 64"), std::string::npos) << r.error().message;
}

INSTANTIATE_TEST_SUITE_P(All, Ranks,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "qwen2", "gemma2"),
                                            ::testing::Values("dp=2", "dp=4", "dp=8", "tp=2",
                                                              "tp=4", "dp=2,tp=2")));

INSTANTIATE_TEST_SUITE_P(Sequences, Ranks,
                         ::testing::Combine(::testing::Values("gpt2", "llama", "gemma2"),
                                            ::testing::Values("cp=2", "cp=4", "dp=2,cp=2",
                                                              "cp=2,tp=2")));

INSTANTIATE_TEST_SUITE_P(Experts, Ranks,
                         ::testing::Combine(::testing::Values("moe"),
                                            ::testing::Values("dp=2", "dp=4", "ep=2", "ep=4",
                                                              "ep=2,dp=2", "dp=2,ep=4",
                                                              "ep=2,tp=2")));

}  // namespace
}  // namespace tegula
