// Accelerators of another kind: each price against bounds that hold whatever the model assumes, and
// the published figures, recomputed by hand here.
#include "tegula/planner/other_price.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/planner/model_presets.h"
#include "tegula/planner/other_kinds.h"

namespace tegula::planner {
namespace {

struct Case {
  ModelSpec model;
  ParamCount params;
};
Case preset(std::string_view name) {
  const ModelSpec m = find_model_preset(name)->model;
  return {m, *count_params(m)};
}

TEST(OtherPrice, StreamedWeightsBoundSmallBatchesAndScaleWithLargeOnes) {
  const Case c = preset("llama2-70b");
  const auto seconds = [&](int64_t n, double tokens) {
    return price_weight_streaming(c.model, c.params, n, {false, tokens, 1, 4096, Number::kBf16})
        ->seconds();
  };
  // Three times 138 GB through 150 GB/s, however few tokens.
  const double streamed = 3 * 2 * static_cast<double>(c.params.total) / 150e9;
  EXPECT_DOUBLE_EQ(seconds(2048, 4 << 20), streamed);
  EXPECT_DOUBLE_EQ(seconds(1, 1), streamed);
  // With large batches twice the systems take half the time.
  EXPECT_NEAR(seconds(8, 64 << 20) / seconds(16, 64 << 20), 2, 1e-9);
  EXPECT_GT(seconds(16, 64 << 20), streamed);
  EXPECT_FALSE(price_weight_streaming(c.model, c.params, 4, {.serve = true}).ok());
}

TEST(OtherPrice, AStaticScheduleNeedsChipsForAllWeights) {
  const Case c = preset("llama2-70b");
  OtherJob job{true, 0, 1, 2048, Number::kI8};
  const auto few = price_static_schedule(c.model, c.params, 64, job);
  ASSERT_FALSE(few.ok());
  EXPECT_NE(few.error().message.find("take 30"), std::string::npos) << few.error().message;
  const auto p = price_static_schedule(c.model, c.params, 576, job);
  ASSERT_TRUE(p.ok());
  // No chip reads faster than its arrays take: 576 chips, one group of 7.2 after another.
  EXPECT_GT(p->seconds(), 70e9 / 7.2 / 18.5e12);
  // 80 layers of four exchanges and 79 between groups.
  EXPECT_NEAR(p->terms.back().seconds, (4 * 80 + 79) * 3e-6, 1e-9);
  job.batch = 1000;
  EXPECT_GT(price_static_schedule(c.model, c.params, 5760, job)->terms[1].seconds,
            p->terms[1].seconds);
}

TEST(OtherPrice, ThreeTiersReadFromHbmAndSwitchFromDdr) {
  const Case c = preset("llama3-8b");
  const auto p = price_three_tiers(c.model, c.params, 16, {true, 0, 1, 1024, Number::kBf16});
  ASSERT_TRUE(p.ok());
  const double bytes = 2 * static_cast<double>(c.params.total);
  EXPECT_GT(p->seconds(), bytes / 16 / 2e12);
  EXPECT_DOUBLE_EQ(p->terms.back().seconds, bytes / 2e12);  // 16 sockets of 125 GB/s
  EXPECT_TRUE(p->terms.back().is_hidden);
  const Case large = preset("llama3-405b");
  EXPECT_FALSE(
      price_three_tiers(large.model, large.params, 8, {true, 0, 1, 10, Number::kBf16}).ok());
}

TEST(OtherPrice, ScoresThatDoNotFitGoThroughDram) {
  const Case c = preset("mistral-7b");
  const auto at = [&](double keys) {
    return *price_wormhole(c.model, c.params, 1, {true, 0, 1, keys, Number::kF8});
  };
  EXPECT_EQ(at(4096).terms.back().seconds, 0);
  // 1.5 MB hold 32 rows of 11,718 keys.
  EXPECT_EQ(at(11718).terms.back().seconds, 0);
  EXPECT_NEAR(at(11719).terms.back().seconds, 32.0 * 32 * 11719 * 4 / (288e9 * .9), 1e-9);
  EXPECT_FALSE(price_wormhole(c.model, c.params, 1, {true, 0, 1, 1, Number::kBf16}).ok());
}

TEST(OtherPrice, GrayskullIsAsWormholeWithItsOwnNumbers) {
  const Case c = preset("gpt2-xl");
  const OtherJob job{true, 0, 1, 1024, Number::kBf16};
  const auto wormhole = price_wormhole(c.model, c.params, 1, job),
             grayskull = price_grayskull(c.model, c.params, 1, job);
  ASSERT_TRUE(wormhole.ok() && grayskull.ok());
  // Both are bound by DRAM: 288 and 118.4 GB/s.
  EXPECT_NEAR(grayskull->seconds() / wormhole->seconds(), 288 / 118.4, 1e-9);
  const Case large = preset("llama3-8b");
  const auto none = price_grayskull(large.model, large.params, 1, job);
  EXPECT_NE(none.error().message.find("the card has 8"), std::string::npos);
  // Within SRAM the time goes with n²; alone by whole rows of tiles on a core.
  EXPECT_NEAR(grayskull_softmax(4096, true).seconds() / grayskull_softmax(2048, true).seconds(), 4,
              1e-9);
  EXPECT_DOUBLE_EQ(grayskull_softmax(3456, false).exponentials_s * 2 * 3488,
                   grayskull_softmax(3488, false).exponentials_s * 3456);
}

TEST(OtherPrice, LocalMemoriesHoldTheModelOrSayHowManyDo) {
  const Case c = preset("gpt2");
  const OtherJob job{true, 0, 8, 512, Number::kBf16};
  const auto one = price_local_memories(c.model, c.params, 1, job);
  ASSERT_TRUE(one.ok()) << one.error().message;
  const auto two = price_local_memories(c.model, c.params, 2, job);
  EXPECT_GT(two->seconds(), one->seconds());  // a token passes both
  const Case large = preset("llama2-7b");
  EXPECT_NE(price_local_memories(large.model, large.params, 4, job).error().message.find("take 1"),
            std::string::npos);
}

// The signed errors, each from arithmetic of its own.
TEST(OtherPrice, PublishedFigures) {
  EXPECT_NEAR(published_weight_streaming().error(), 16 / 15.3 - 1, 1e-9);
  EXPECT_NEAR(published_three_tiers().error(), 1e12 / 31.5e9 / 31 - 1, 1e-9);
  // 16,384 scores a core take 33.72 µs, so 262,144 do what was measured: 539.14 µs.
  const double exponentials = 33.72e-6 * 262144 / 16384;
  EXPECT_NEAR(exponentials, 539.14e-6, 0.002 * exponentials);
  // 33.6 MB out; five passes of a megabyte. The rows of tiles of softmax alone: two on some cores.
  const double fused = exponentials + 5 * 262144 * 4 / 384e9 + 2 * 4096 * 4096 / (118.4e9 * .9);
  const double alone =
      2 * 32 * 4096 * (33.72e-6 / 16384 + 5 * 4 / 384e9) + 4 * 4096 * 4096 / (118.4e9 * .9);
  EXPECT_NEAR(published_grayskull().planned, 1e3 * fused, 1e-6);
  // The paper has 1.8 for this.
  EXPECT_NEAR(grayskull_softmax(4096, false).seconds() / grayskull_softmax(4096, true).seconds(),
              alone / fused, 1e-9);
  // 8.03 GB of weights of a byte, 32 · 128 tokens of 32 layers' keys and values.
  const double wormhole = (8030261248 + 32 * 128 * 2.0 * 8 * 128 * 32) / (288e9 * .9);
  EXPECT_NEAR(published_wormhole().planned, 1 / wormhole, 1e-9);
  // 70.3 GB out of 576 chips' SRAM, 480 products in a row, 399 exchanges.
  const double bytes = 68976648192 + 4096.0 * 2 * 2 * 8 * 128 * 80;
  const double token =
      80 * bytes / 576 / (20480 * 0.9e9) + 480 * (1 / 20400.0 - 8.2e9 / 750e12) / 50 + 399 * 3e-6;
  EXPECT_NEAR(published_static_schedule().planned, 1 / token, 0.01);
  // 2·2944³ at 124.5 TFLOP/s; 1,216 tiles of strips of 2·2944·2 bytes by 84.4; nine supersteps.
  const double strips = 2 * 2944.0 * 2 * 2944 / std::sqrt(1216.0);
  const double s = 2 * 2944.0 * 2944 * 2944 / 124.5e12 + strips * 1216 / 7.7e12 + 8 * 130e-9;
  EXPECT_NEAR(published_local_memories().planned, 2 * 2944.0 * 2944 * 2944 / s / 1e12, 0.1);
  for (const OtherKind& k : other_kinds())
    if (k.published) {
      const PublishedFigure f = k.published();
      EXPECT_GT(f.planned, 0) << k.name;
      EXPECT_FALSE(f.source.empty() || f.assumed.empty()) << k.name;
    }
}

}  // namespace
}  // namespace tegula::planner
