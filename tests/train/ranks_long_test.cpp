// Mode exact where a sequence has shards (256 tokens and more): sums over it are shared out by the
// ranks that share the sequence, and the bits are those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tegula/train/step.h"
#include "tests/train/on_ranks.h"

namespace tegula {
namespace {

TrainConfig of_long_rows(const char* model, int64_t batch, int64_t seqlen = 256) {
  TrainConfig c = tiny(model, "exact");
  c.model.max_seqlen = seqlen, c.batch = batch;
  return c;
}

struct Case {
  const char* model;
  int64_t batch;
  const char* mesh;
};
std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.model << ", " << c.batch << " rows, " << c.mesh;
}

class LongRanks : public ::testing::TestWithParam<Case> {};

TEST_P(LongRanks, HaveTheBitsOfOneRank) {
  for (const char* dtype : {"f32", "bf16"}) {
    TrainConfig c = of_long_rows(GetParam().model, GetParam().batch);
    c.dtype = dtype;
    expect_bits_of_one_rank(c, GetParam().mesh);
  }
}

// One row (inner trees pend), fewer rows than ranks (they are exchanged), one row a rank, rows that
// do not lie together in a cell (12: 4 shards of 3), and as many as there are shards. GPT-2 has
// biases and a table of two uses, the others none of both.
INSTANTIATE_TEST_SUITE_P(
    All, LongRanks,
    ::testing::Values(Case{"gpt2", 1, "cp=2"}, Case{"gpt2", 1, "cp=8"}, Case{"gpt2", 2, "cp=4"},
                      Case{"gpt2", 2, "dp=2,cp=2"}, Case{"gpt2", 2, "dp=2"},
                      Case{"gpt2", 4, "tp=4"}, Case{"gpt2", 4, "dp=2,tp=2"},
                      Case{"gpt2", 3, "cp=4"}, Case{"gpt2", 12, "dp=4,cp=2"},
                      Case{"llama", 1, "cp=4"}, Case{"llama", 2, "dp=2,cp=4"},
                      Case{"llama", 4, "cp=2,tp=2"}, Case{"llama", 4, "dp=2,cp=2"},
                      Case{"llama", 8, "cp=4"}, Case{"gemma2", 2, "dp=2,cp=2"},
                      Case{"qwen2", 2, "cp=2,tp=2"}, Case{"moe", 2, "dp=2,cp=2"}));

CompiledRanks compiled(TrainConfig c, const char* mesh) {
  c.mesh = in_training_order(*mesh_from_text(mesh));
  const StepFunctions f = *build_step_functions(c);
  auto r = compile_for_ranks(c, f, f.train_step, Target::this_cpu(1));
  EXPECT_TRUE(r.ok()) << r.error().to_string();
  return std::move(*r);
}

// Only attention needs the whole of what a sequence's ranks have. All else is summed where it lies,
// if a row is long beside a weight.
TEST(LongRanks, GatherNothingButForAttention) {
  for (const char* model : {"gpt2", "llama"})
    for (const auto& [batch, mesh] : {std::pair<int64_t, const char*>{1, "cp=4"},
                                      {2, "cp=4"},
                                      {2, "dp=2,cp=2"},
                                      {4, "dp=4,cp=2"}}) {
      const CompiledRanks r = compiled(of_long_rows(model, batch, 2048), mesh);
      for (const Step& s : r.plans[0]->steps) {
        const std::string_view name = s.op->name;
        if (s.ends >= 0 || (name != "all_gather" && name != "all_to_all")) continue;
        const bool of_gradient = s.in[0].type.shape.rank() == 1 && s.phase != Phase::kForward;
        EXPECT_TRUE(s.scope.ends_with("attn") || of_gradient)
            << model << " " << mesh << ": " << name << " of " << cat(s.in[0].type) << " in "
            << s.scope;
      }
      for (const Uncut& u : r.sharded.uncut)
        EXPECT_TRUE(u.scope.ends_with("attn")) << u.op->name << " in " << u.scope;
    }
}

// A sum that ranks cannot share is said with its reason.
TEST(LongRanks, SayWhatASequenceIsTooShortFor) {
  const auto n_notes = [](int64_t seqlen, const char* mesh) {
    const CompiledRanks r = compiled(of_long_rows("llama", 2, seqlen), mesh);
    return std::ranges::count_if(r.notes, [&](const std::string& note) {
      return note.find(cat("a sum over ", seqlen, " tokens has")) != std::string::npos;
    });
  };
  EXPECT_EQ(n_notes(128, "cp=2"), 1);
  EXPECT_EQ(n_notes(260, "cp=4"), 0);
  EXPECT_EQ(n_notes(256, "cp=4"), 0);
  EXPECT_EQ(n_notes(128, "dp=2"), 0);
}

// The loss of each token stays where it is: ranks join scalars.
TEST(Loss, OfAMeshGathersNoLosses) {
  for (const char* mesh : {"dp=2", "cp=4", "dp=2,cp=2"}) {
    const CompiledRanks r = compiled(of_long_rows("llama", 4), mesh);
    int64_t n_sums = 0;
    for (const Step& s : r.plans[0]->steps) {
      if (!s.op->name.starts_with("all_") || s.ends >= 0 || s.phase != Phase::kForward ||
          s.scope != "head")
        continue;
      EXPECT_EQ(s.in[0].type.shape.rank(), 0) << mesh << " " << s.op->name;
      n_sums += s.in[0].type.dtype == DType::kI64;
    }
    EXPECT_GT(n_sums, 0) << mesh;
  }
}

// Gradients of a batch of few tokens are sums over its shards, too: what is sent is these, once.
TEST(SmallBatches, SendGradientsOnceAndNothingElse) {
  TrainConfig c = tiny("llama", "exact");  // 8 rows of 16
  c.model.d_model = 128, c.model.d_ff = 0, c.model.head_dim = 0;
  ASSERT_TRUE(c.model.resolve().ok());
  const CompiledRanks r = compiled(c, "dp=2");
  int64_t weights = 0;
  for (const auto& p : r.plans[0]->params)
    if (p.role == Role::kWeight) weights += p.tensor.type.bytes();
  // An all_reduce of two ranks sends as much as there is; scalars, and what fills up buckets.
  EXPECT_LE(r.plans[0]->sent_bytes(r.mesh, r.mesh.at(0)), weights * 101 / 100);
}

}  // namespace
}  // namespace tegula
