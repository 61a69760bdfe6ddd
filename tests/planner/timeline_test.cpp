// The composed timeline beside whole plans: 50 toy layouts and more, equal to the byte.
#include "tegula/planner/timeline.h"

#include <gtest/gtest.h>

#include "tegula/train/ranks.h"

namespace tegula::planner {
namespace {

std::shared_ptr<const Plan> plan_of(TrainConfig c, int64_t layers) {
  c.model.n_layers = layers;
  EXPECT_TRUE(c.model.resolve().ok());
  const auto f = build_step_functions(c);
  EXPECT_TRUE(f.ok());
  const FuncId id = c.accumulate > 1 ? f->micro_step : f->train_step;
  const auto ranks = compile_for_ranks(c, *f, id, Target::one_thread());
  EXPECT_TRUE(ranks.ok()) << ranks.error().message;
  return ranks.ok() ? ranks->plans[0] : nullptr;
}

TrainConfig toy(const char* family, int64_t width, int64_t seqlen, int64_t batch) {
  TrainConfig c;
  c.model.type = family;
  c.model.n_heads = 4, c.model.d_model = width, c.model.max_seqlen = seqlen;
  c.model.vocab_size = 65, c.model.n_experts = 4;
  c.batch = batch;
  return c;
}

TEST(Timeline, IsThatOfTheWholePlanOnToyLayouts) {
  int n = 0;
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "gemma2"})
    for (const char* mesh : {"", "tp=2", "cp=2", "dp=2", "dp=2,tp=2"})
      for (const auto& [width, seqlen, batch] :
           {std::tuple<int64_t, int64_t, int64_t>{32, 16, 4}, {64, 48, 2}}) {
        TrainConfig c = toy(family, width, seqlen, batch);
        if (*mesh) c.mesh = *mesh_from_text(mesh);
        std::shared_ptr<const Plan> plans[4];  // of three layers and more
        for (int k = 0; k < 4; ++k) plans[k] = plan_of(c, 3 + k);
        for (const int64_t layers : {6, 9}) {
          const auto whole = plan_of(c, layers);
          // As few as have steady layers between the first and the last ones.
          auto composed = composed_peak(*plans[0], *plans[1], layers, 3);
          for (int k = 1; k < 3 && !composed.ok(); ++k)
            composed = composed_peak(*plans[k], *plans[k + 1], layers, 3 + k);
          EXPECT_TRUE(composed.ok()) << composed.error().message;
          if (!composed.ok()) continue;
          EXPECT_EQ(*composed, whole->lower_bound_bytes)
              << family << " " << mesh << " " << width << " " << layers << " layers";
        }
        ++n;
      }
  EXPECT_EQ(n, 50);
}

// Tests what the planner makes of the two plans: kept a layer, and the rest.
TEST(Timeline, LayersAndTheRestAreThatOfTheWholePlan) {
  int n = 0;
  for (const char* family : {"gpt2", "llama", "mistral", "qwen2", "gemma2", "moe"})
    for (const char* mesh : {"", "tp=2", "cp=2", "dp=2"})
      for (const char* dtype : {"f32", "bf16"}) {
        TrainConfig c = toy(family, 64, 32, 4);
        c.dtype = dtype, c.accumulate = 2;
        if (*mesh) c.mesh = *mesh_from_text(mesh);
        std::shared_ptr<const Plan> plans[4];
        for (int k = 0; k < 4; ++k) plans[k] = plan_of(c, 3 + k);
        auto live = layer_live(*plans[0], *plans[1], 3);
        for (int k = 1; k < 3 && !live.ok(); ++k)
          live = layer_live(*plans[k], *plans[k + 1], 3 + k);
        if (!live.ok()) continue;
        ++n;
        SCOPED_TRACE(cat(family, " ", mesh, " ", dtype));
        const auto whole = plan_of(c, 9);
        const std::vector<int64_t> all = live_bytes(*whole, false);
        const auto most = static_cast<double>(*std::max_element(all.begin(), all.end()));
        EXPECT_EQ(9 * live->kept + live->working(9, true, true), most);
        EXPECT_LE(most, static_cast<double>(whole->lower_bound_bytes));
        EXPECT_LE(live->boundary, live->kept);
        EXPECT_GT(live->boundary, 0);
        EXPECT_LE(live->working(9, false, false), live->working(9, true, true));
      }
  EXPECT_GE(n, 40);
}

TEST(Timeline, LiveBytesOfAPlanPeakAtItsLowerBound) {
  const auto plan = plan_of(toy("gpt2", 32, 16, 4), 3);
  const std::vector<int64_t> live = live_bytes(*plan);
  EXPECT_EQ(*std::max_element(live.begin(), live.end()), plan->lower_bound_bytes);
  EXPECT_FALSE(composed_peak(*plan, *plan, 2).ok());
  const auto other = plan_of(toy("llama", 32, 16, 4), 4);
  EXPECT_FALSE(composed_peak(*plan, *other, 9).ok());
}

}  // namespace
}  // namespace tegula::planner
