// Tests of ranks' plans: where exchanges stand, what they carry and what runs beside them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tegula/cost/price.h"
#include "tegula/ops/table.h"
#include "tegula/train/step.h"
#include "tests/train/on_ranks.h"

namespace tegula {
namespace {

// ZeRO-3: weights are fetched in the background, one ahead, for each phase anew, and dropped.
TEST(RankPlans, WeightsAreFetchedAndDropped) {
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

// ZeRO: peak memory is what its formula says, the activations of a rank's share of the batch, and
// three layers' gradients (and weights that are fetched); stage 3 sends three parts of all weights,
// those for the forward part, those for the backward one, and the gradients.
// [Rajbhandari et al. 2020, sections 5 and 7]
TEST(RankPlans, ZeroHoldsAndSendsWhatItsFormulasSay) {
  constexpr int64_t kRanks = 4;
  for (const char* mode : {"fast", "exact"})
    for (const int64_t zero : {1, 2, 3}) {
      SCOPED_TRACE(cat(mode, " zero ", zero));
      TrainConfig c = tiny("llama", mode);
      c.model.n_layers = 12, c.model.d_model = 128, c.model.d_ff = 0, c.model.head_dim = 0;
      c.model.max_seqlen = 16, c.optimizer.weight_decay = 0.1;
      ASSERT_TRUE(c.model.resolve().ok());
      const auto compiled = [&] {
        const StepFunctions f = *build_step_functions(c);
        return *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
      };
      c.batch = 1;
      const StepFunctions f = *build_step_functions(c);
      int64_t weights = 0, layer = 0, table = 0;
      for (const WeightSpec& w : f.weights) {
        weights += w.type.bytes();
        layer += w.name.find("layers.0.") != std::string::npos ? w.type.bytes() : 0;
        table += w.name.find("embed_tokens") != std::string::npos ? w.type.bytes() : 0;
      }
      ASSERT_GT(layer, 0);
      const int64_t activations = compiled().plans[0]->arena_bytes - weights;
      c.batch = kRanks, c.mesh = *mesh_from_text("dp=4"), c.zero = zero;
      const CompiledRanks ranks = compiled();
      const Plan& plan = *ranks.plans[0];
      const int64_t state = (zero == 3 ? weights / kRanks : weights) + 2 * weights / kRanks;
      EXPECT_LE(plan.param_bytes, state + state / 50);  // lines are filled up
      const int64_t fetched = zero == 3 ? 3 * layer : 0;
      EXPECT_LE(plan.arena_bytes, activations + weights / kRanks + 3 * layer + fetched)
          << activations << " of activations, " << weights << " of weights, " << layer
          << " of a layer's";
      int64_t sent = 0;
      for (const Step& s : plan.steps)
        if (s.ends < 0 && (s.op->name == "all_gather" || s.op->name == "reduce_scatter"))
          sent += std::max(s.in[0].type.bytes(), s.out[0].type.bytes());
      // The backward part does not read the table.
      EXPECT_EQ(sent, zero == 3 ? 3 * weights - table : 2 * weights);
    }
}

// A process plans its own ranks alone, and gives them the plans that it gives all.
TEST(RankPlans, SomeRanksHaveThePlansTheyHaveAmongAll) {
  for (const auto& [mesh, accumulate] :
       {std::pair{"dp=2,tp=2", 4}, {"dp=3,tp=2", 1}, {"dp=2,cp=2,tp=2", 2}, {"ep=2,dp=2", 1}}) {
    TrainConfig c = tiny(std::string(mesh).find("ep") < 6 ? "moe" : "gpt2", "exact");
    c.batch = 12, c.accumulate = accumulate, c.zero = 1;
    c.mesh = in_training_order(*mesh_from_text(mesh));
    const int64_t n = c.mesh.n_ranks();
    const auto compiled = [&](size_t part, RankRange own) {
      const StepFunctions f = *build_step_functions(c);
      return *compile_for_ranks(c, f, parts_of_step(c, f)[part].function, Target::this_cpu(1), own);
    };
    for (size_t part = 0; part < (accumulate > 1 ? 2U : 1U); ++part) {
      const CompiledRanks all = compiled(part, {});
      ASSERT_EQ(static_cast<int64_t>(all.plans.size()), n);
      for (const RankRange own : {RankRange{0, 1}, {n - 1, 1}, {1, 2}, {n / 2, n / 2}}) {
        const CompiledRanks some = compiled(part, own);
        ASSERT_EQ(static_cast<int64_t>(some.plans.size()), own.n);
        for (int64_t r = own.first; r < own.first + own.n; ++r)
          EXPECT_EQ(some.plan_of(r)->to_string(), all.plan_of(r)->to_string()) << mesh << " " << r;
      }
    }
  }
}

// Gradients are joined in halves, in the background, while the backward part goes on; those too
// small to be worth a meeting go together.
TEST(RankPlans, GradientsAreJoinedBesideTheBackwardPart) {
  for (const char* mode : {"fast", "exact"}) {
    TrainConfig c = tiny("llama", mode);
    c.model.n_layers = 6, c.model.d_model = 128, c.model.d_ff = 0, c.model.head_dim = 0;
    c.model.max_seqlen = 64;
    ASSERT_TRUE(c.model.resolve().ok());
    c.mesh = *mesh_from_text("dp=4");
    const StepFunctions f = *build_step_functions(c);
    const auto ranks = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
    const Plan& plan = *ranks.plans[0];
    int64_t n_halves = 0, n_beside = 0, bytes = 0, n_copied = 0;
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& s = plan.steps[i];
      if (!s.op->collective || s.ends >= 0) continue;
      EXPECT_TRUE(s.op->name != "all_reduce" || s.in[0].type.shape.numel() <= 128)
          << mode << ": " << cat(s.in[0].type) << " is joined in the foreground";
      if (s.op->name == "all_reduce") continue;
      n_halves += 1, bytes += s.op->name == "reduce_scatter" ? s.in[0].type.bytes() : 0;
      bool is_beside = false;
      for (size_t j = i; s.starts >= 0 && plan.steps[j].ends != s.starts; ++j)
        is_beside |= plan.steps[j].op == &dot_op;
      n_beside += is_beside;
    }
    int64_t n_weights = 0, weight_bytes = 0;
    const Target& target = plan.target;
    for (const WeightSpec& w : f.weights) {
      const double copying = 2 * static_cast<double>(w.type.bytes()) / bytes_per_s(target);
      const bool is_small = copying < price_of_exchange(target, 2, 0);
      n_weights += 1, weight_bytes += w.type.bytes(), n_copied += is_small;
    }
    // All of them, filled up to a multiple of ranks; of two that are small one meeting less each.
    EXPECT_GE(bytes, weight_bytes) << mode;
    EXPECT_LE(bytes, weight_bytes + n_weights * 4 * 4) << mode;
    EXPECT_GT(n_copied, 6) << mode;
    EXPECT_LT(n_halves, 2 * (n_weights - n_copied / 2)) << mode;
    // But for what the last layers' products have nothing beside.
    EXPECT_GT(n_beside, n_halves * 2 / 3) << mode << ": of " << n_halves;
  }
}

// Attention over cp is a ring in fast; what exact gathers is said.
TEST(RankPlans, SequencesGoRoundARing) {
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

// Stripes: the call of each hop is a plain causal one, a token further on where the keys' rank
// comes behind the queries': then the first query and the last key have nobody.
TEST(RankPlans, StripesArePlainCausalCalls) {
  constexpr int64_t kRanks = 4, kSeqlen = 256, kRows = kSeqlen / kRanks;
  TrainConfig c = tiny("llama", "fast");
  c.mesh = *mesh_from_text("cp=4"), c.ring = "striped", c.model.max_seqlen = kSeqlen;
  const StepFunctions f = *build_step_functions(c);
  const CompiledRanks ring = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
  std::set<int64_t> flops[2];
  for (int64_t r = 0; r < kRanks; ++r) {
    int64_t n = 0;
    for (const Step& s : ring.plans[static_cast<size_t>(r)]->steps) {
      if (s.op->name != "attention") continue;
      const int64_t j = (r - n++ % kRanks + kRanks) % kRanks;
      EXPECT_EQ(s.attrs.ints("q_runs"), std::vector<int64_t>{0}) << r << " of " << j;
      EXPECT_EQ(s.attrs.ints("k_runs"), std::vector<int64_t>{j > r ? 1 : 0}) << r << " of " << j;
      if (j != r) flops[j > r].insert(s.flops);  // a first hop joins nothing
    }
    EXPECT_EQ(n, 2 * kRanks);  // layers times hops
  }
  ASSERT_EQ(flops[0].size(), 1U);
  ASSERT_EQ(flops[1].size(), 1U);
  const auto pairs = [](int64_t rows) { return rows * (rows + 1) / 2; };
  EXPECT_NEAR(static_cast<double>(*flops[1].begin()) / static_cast<double>(*flops[0].begin()),
              static_cast<double>(pairs(kRows - 1)) / static_cast<double>(pairs(kRows)), 0.01);
}

// Experts stay where they are: tokens go to them and come home, in the forward part and in the
// backward one; what dp splits stays apart, and only dp joins their gradients.
TEST(RankPlans, TokensGoToTheirExperts) {
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
      // The collective that joins sums of shards is an all_reduce's where a rank has some of them.
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

}  // namespace
}  // namespace tegula
