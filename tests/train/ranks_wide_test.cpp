// Mode exact where sums have shards (512 and wider): what pends over the same shards is joined
// once, and the bits are those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "tegula/train/step.h"
#include "tests/train/on_ranks.h"

namespace tegula {
namespace {

TrainConfig wide(const char* model, const char* mode) {
  TrainConfig c = tiny(model, mode);
  c.model.d_model = 512, c.model.d_ff = 0, c.model.n_heads = 8;
  c.model.head_dim = 0, c.model.max_seqlen = 8;
  const std::string name = model;
  c.model.n_kv_heads = name == "gpt2" || name == "moe" ? 0 : 4;
  if (name == "moe") c.model.n_experts = 4;
  const Status st = c.model.resolve();
  EXPECT_TRUE(st.ok()) << st.error().message;
  return c;
}

class WideRanks : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(WideRanks, HaveTheBitsOfOneRank) {
  const auto [model, mesh] = GetParam();
  for (const char* dtype : {"f32", "bf16"}) {
    TrainConfig c = wide(model, "exact");
    c.dtype = dtype;
    expect_bits_of_one_rank(c, mesh);
  }
}

INSTANTIATE_TEST_SUITE_P(Dense, WideRanks,
                         ::testing::Combine(::testing::Values("gpt2", "llama"),
                                            ::testing::Values("tp=4", "dp=2,tp=2")));
INSTANTIATE_TEST_SUITE_P(Others, WideRanks,
                         ::testing::Combine(::testing::Values("gemma2", "moe"),
                                            ::testing::Values("dp=2,tp=2")));

// How often rank 0 joins sums of a shape.
int64_t n_joined(const TrainConfig& c, const Shape& shape) {
  const StepFunctions f = *build_step_functions(c);
  const CompiledRanks r = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
  return std::ranges::count_if(r.plans[0]->steps, [&](const Step& s) {
    // Gradients are joined flat and in two halves.
    const bool is_half =
        s.op->name == "reduce_scatter" && s.in[0].type.shape.numel() == shape.numel();
    const bool is_whole = s.op->name == "all_reduce" && s.in[0].type.shape == shape;
    return s.ends < 0 && (is_half || is_whole);
  });
}

// A layer has four sums of activations: forward those of attention's and the feed-forward's ends,
// backward those of what they begin with (q, k and v; gate and up). A fused projection's is one.
TEST(SumsOfRanks, OverTheSameShardsAreJoinedOnce) {
  for (const char* model : {"gpt2", "llama", "qwen2"})
    for (const char* dtype : {"f32", "bf16"})
      for (const char* mode : {"exact", "fast"}) {
        TrainConfig c = wide(model, mode);
        c.dtype = dtype, c.mesh = *mesh_from_text("tp=2");
        EXPECT_EQ(n_joined(c, {c.batch, 8, 512}), 2 * 4) << model << " " << dtype << " " << mode;
      }
}

// The norm of gradients needs none of them whole: what tp splits is never gathered. (512 tokens, so
// that dp, too, sums over shards.)
TEST(SumsOfRanks, OfSquaresGatherNoGradient) {
  for (const char* model : {"gpt2", "llama", "qwen2"})
    for (const char* mode : {"exact", "fast"})
      for (const char* mesh : {"tp=2", "tp=4", "dp=2,tp=2"}) {
        TrainConfig c = wide(model, mode);
        c.model.max_seqlen = 64, c.mesh = *mesh_from_text(mesh);
        const StepFunctions f = *build_step_functions(c);
        const CompiledRanks r = *compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
        int64_t n_scalars = 0;
        std::set<ValueId>
            halves;  // of sums: what reduce_scatter made, gathered over one axis or more
        for (const Step& s : r.plans[0]->steps)
          if (s.op->name == "reduce_scatter" ||
              (s.op->name == "all_gather" && halves.count(s.in[0].holds) > 0))
            halves.insert(s.out[0].value);
        for (const Step& s : r.plans[0]->steps) {
          if (!s.op->collective) continue;
          n_scalars += s.in[0].type.shape.rank() == 0 && s.scope.empty();
          const bool is_of_activations = s.in[0].type.shape.rank() == 3;
          EXPECT_TRUE(s.op->name != "all_gather" || is_of_activations ||
                      halves.count(s.in[0].holds) > 0)
              << cat(model, " ", mode, " ", mesh, ": ", s.in[0].type, " in ", s.scope);
        }
        // The largest element and two sums, over each axis.
        if (std::string(mode) == "exact")
          EXPECT_LE(n_scalars, 3 * static_cast<int64_t>(c.mesh.axes.size())) << model << mesh;
      }
}

// A table that is embedding and head has one sum over the batch.
// In exact each use is summed apart, so that stages of a pipeline and micro-batches may share them.
TEST(SumsOfRanks, OfATableThatIsUsedTwice) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* mode : {"exact", "fast"})
      for (const char* mesh : {"dp=2", "dp=8"}) {
        TrainConfig c = wide("gpt2", mode);
        c.dtype = dtype, c.mesh = *mesh_from_text(mesh);
        EXPECT_EQ(n_joined(c, {61, 512}), c.mode == "exact" ? 2 : 1)
            << dtype << " " << mode << " " << mesh;
      }
}

}  // namespace
}  // namespace tegula
