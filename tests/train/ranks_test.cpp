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
    const Ran one = run_on(c, ""), many = run_on(c, mesh);
    EXPECT_EQ(one.losses, many.losses) << dtype;
    EXPECT_EQ(one.norms, many.norms) << dtype;
    for (const auto& [name, w] : one.weights)
      EXPECT_EQ(differing(w, many.weights.at(name)), 0) << dtype << " " << name;
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
    return step_cost(c, *r.plans[0], nullptr)->state_bytes;
  };
  // Of three f32 tensors a weight, two are split by dp's ranks, but for what it does not divide.
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

// ZeRO-3: weights are fetched in the background, one ahead, for each phase anew, and dropped.
TEST(Mesh, WeightsAreFetchedAndDropped) {
  TrainConfig c = tiny("llama", "fast");
  c.model.n_layers = 8, c.model.d_model = 64, c.model.d_ff = 0, c.batch = 4;
  c.model.head_dim = 0;
  ASSERT_TRUE(c.model.resolve().ok());
  c.mesh = *mesh_from_text("dp=4");
  const auto compiled = [&](int64_t zero) {
    c.zero = zero;
    const StepFunctions f = *build_step_functions(c);
    return *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
  };
  const CompiledRanks whole = compiled(2), fetched = compiled(3);
  const Plan& plan = *fetched.plans[0];
  int64_t gathered = 0, in_background = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& s = plan.steps[i];
    if (s.op->name != "all_gather" || s.ends >= 0) continue;
    gathered += 1, in_background += s.starts >= 0;
    // Nothing fetched lives from the forward part into the backward one.
    const Slot& slot = plan.slots[static_cast<size_t>(s.out[0].slot)];
    EXPECT_LT(slot.last_step - slot.first_step, static_cast<int>(plan.steps.size()) / 4) << i;
  }
  EXPECT_GE(gathered, 2 * 8 * 4);
  EXPECT_GE(2 * in_background, gathered);
  // Weights and two moments: 3/4 of a weight each instead of 1 + 2/4, but for lines that are filled
  // up.
  EXPECT_LE(plan.param_bytes, whole.plans[0]->param_bytes / 2 + whole.plans[0]->param_bytes / 100);
  EXPECT_LT(plan.peak_bytes(), whole.plans[0]->peak_bytes());
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

// Attention over cp is a ring in fast; what exact gathers is said.
TEST(Mesh, SequencesGoRoundARing) {
  TrainConfig c = tiny("llama", "fast");
  c.mesh = *mesh_from_text("cp=4");
  c.model.max_seqlen = 256;
  const auto compiled = [&](const char* mode) {
    c.mode = mode;
    const StepFunctions f = *build_step_functions(c);
    return *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
  };
  const CompiledRanks ring = compiled("fast"), gathers = compiled("exact");
  for (size_t r = 0; r < 4; ++r) {
    const Plan& fast = *ring.plans[r];
    // Two layers, K and V, three hops, forward and backward; dK and dV home.
    const auto sends = std::ranges::count_if(
        fast.steps, [](const Step& s) { return s.op->name == "send_recv" && s.ends < 0; });
    EXPECT_EQ(sends, 2 * (2 * 3 * 2 + 2 * 3));
    EXPECT_GT(fast.n_background(), 2 * 2 * 3);
    // A hop is started before the attention beside it, and ends after it.
    bool is_beside = false;
    for (size_t i = 0; i < fast.steps.size(); ++i) {
      if (fast.steps[i].starts < 0 || fast.steps[i].op->name != "send_recv") continue;
      for (size_t j = i; fast.steps[j].ends != fast.steps[i].starts; ++j)
        is_beside |= fast.steps[j].op->name.starts_with("attention");
    }
    EXPECT_TRUE(is_beside);
  }
  EXPECT_TRUE(ring.notes.empty());
  ASSERT_FALSE(gathers.notes.empty());
  EXPECT_NE(gathers.notes.back().find("gathers keys and values"), std::string::npos);
}

// Experts stay where they are: tokens go to them and come home, in the forward part and in the
// backward one; what dp splits stays apart, and only dp joins their gradients.
TEST(Mesh, TokensGoToTheirExperts) {
  for (const char* mode : {"fast", "exact"})
    for (const char* mesh : {"ep=4", "ep=2,dp=2"}) {
      TrainConfig c = tiny("moe", mode);
      c.model.n_experts = 8, c.model.max_seqlen = 256, c.model.capacity_factor = 1;
      const auto compiled = [&](const char* text) {
        c.mesh = in_training_order(*mesh_from_text(text));
        const StepFunctions f = *build_step_functions(c);
        return *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
      };
      const CompiledRanks one = compiled(""), many = compiled(mesh);
      int64_t n_turns = 0, expert_flops = 0, all_flops = 0;
      const auto flops_of_experts = [](const Plan& plan) {
        int64_t n = 0;
        for (const Step& s : plan.steps)
          if (s.op->name == "dot" && s.scope.ends_with("mlp") && s.out[0].type.shape.rank() > 2)
            n += s.flops;
        return n;
      };
      all_flops = flops_of_experts(*one.plans[0]);
      for (const auto& plan : many.plans) expert_flops += flops_of_experts(*plan);
      // What sums of shards are joined by is an all_reduce's where a rank has some of them.
      EXPECT_LE(expert_flops, all_flops) << mode << " " << mesh;
      EXPECT_GT(expert_flops, all_flops - all_flops / 1000) << mode << " " << mesh;
      for (const Step& s : many.plans[0]->steps) {
        if (!s.op->collective || !s.scope.ends_with("mlp") || s.ends >= 0) continue;
        n_turns += s.op->name == "all_to_all";
        EXPECT_TRUE(s.op->name != "all_gather" || s.out[0].type.shape.rank() < 2)
            << cat(mode, " ", mesh, ": ", s.in[0].type, " is gathered");
        EXPECT_TRUE(s.attrs.str("axis") == "dp" || s.op->name == "all_to_all" ||
                    s.out[0].type.shape.rank() < 3)
            << cat(mode, " ", mesh, ": ", s.in[0].type, " is joined over ep");
      }
      EXPECT_EQ(n_turns, 4 * c.model.n_layers) << mode << " " << mesh;
    }
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
