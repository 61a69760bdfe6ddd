// Prefill and decoding: bounds that hold whatever the efficiencies, Pope et al. 2022's trade
// between partitions, what memory holds.
#include "tegula/planner/serving.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tegula/cost/collective.h"
#include "tegula/planner/model_presets.h"
#include "tegula/planner/search.h"

namespace tegula::planner {
namespace {

ModelSpec preset(std::string_view name) { return find_model_preset(name)->model; }

TEST(Serving, TheLecturesBatch) {
  EXPECT_EQ(compute_bound_batch(preset("gpt2"), 312e12, 1.5e12, 2), 208);
  // Eight experts of which two are read by a token: four times as many.
  EXPECT_EQ(compute_bound_batch(preset("mixtral-8x7b"), 312e12, 1.5e12, 2), 832);
}

TEST(Serving, AStepReadsAllWeightsAndCaches) {
  for (const char* name : {"llama3-8b", "gpt2-xl", "llama2-13b"}) {
    const ModelSpec m = preset(name);
    ClusterSpec c = *parse_cluster("H200");
    c.device.launch_s = c.device.product_start_s = 0;
    const ServeJob job{512, 2, 0, Number::kBf16};
    const ParamCount p = *count_params(m);
    for (const double batch : {1.0, 16.0, 64.0}) {
      const StepSeconds s = serve_step(m, c, job, {}, batch, 1, 513);
      const double products =
          static_cast<double>(p.total - (m.is_tied ? 0 : p.embedding) - p.positions);
      const double bytes = 2 * products + batch * 513 * kv_bytes_per_token(m, 2);
      const double rate = memory_rate(c.device);
      EXPECT_GE(s.total(), 0.999 * bytes / rate) << name;  // norms and biases are not in it
      EXPECT_LE(s.total(), 1.1 * bytes / rate) << name << " at " << batch;
      EXPECT_EQ(s.bound_by(), "memory");
    }
  }
}

TEST(Serving, PrefillIsBoundByComputeAndCountsCausalKeys) {
  const ModelSpec m = preset("llama3-8b");
  ClusterSpec c = *parse_cluster("H100");
  const ServeJob job{4096, 1, 0, Number::kBf16};
  const StepSeconds s = serve_step(m, c, job, {}, 1, 4096, 4097 / 2.0);
  const TokenFlops f = token_flops(m, 4096);
  const double flops = 4096 * (f.layers + f.causal_attention) + f.head;
  EXPECT_EQ(s.bound_by(), "compute");
  EXPECT_GE(s.total(), flops / (989e12 * .845));
  EXPECT_LE(s.total(), 1.25 * flops / (989e12 * .634));
}

TEST(Serving, MoreDevicesDecodeFaster) {
  const ModelSpec m = preset("llama3-70b");
  const ClusterSpec c = *parse_cluster("8xH100");
  double last = HUGE_VAL;
  for (const int64_t n : {2, 4, 8}) {
    ServeLayout l;
    l.n = n;
    const double s = serve_step(m, c, {1024, 128, 0, Number::kBf16}, l, 16, 1, 1088).total();
    EXPECT_LT(s, last);
    if (n > 2) EXPECT_GT(s, last / 2.01) << "no more than linear";
    last = s;
  }
}

// Section 3.2.2 there: with f = 4h the best x is √n/2. A gate doubles what goes into the hidden
// width.
TEST(Serving, TwoDimensionsAtTheirOptimum) {
  const ModelSpec m = preset("palm-540b");
  ClusterSpec c = *parse_cluster("64xTPU-v4");
  c.device.inside.seconds = 0;
  double best = HUGE_VAL;
  int64_t best_x = 0;
  for (const int64_t x : {2, 4, 8, 16, 32}) {
    ServeLayout l;
    l.n = 64, l.partition = Partition::kStationary2d, l.x = x;
    const double comm = serve_step(m, c, {2048, 64, 0, Number::kBf16}, l, 512, 1, 2080).comm;
    if (comm < best) best = comm, best_x = x;
  }
  EXPECT_EQ(best_x, 4);
  // It beats one dimension, whose traffic does not fall with n.
  ServeLayout one;
  one.n = 64;
  EXPECT_LT(best, serve_step(m, c, {2048, 64, 0, Number::kBf16}, one, 512, 1, 2080).comm);
}

// Figure 3 there: few tokens move activations, many tokens move weights.
TEST(Serving, ManyTokensGatherWeights) {
  const ModelSpec m = preset("palm-540b");
  const ClusterSpec c = *parse_cluster("64xTPU-v4");
  const auto best = [&](double sequences, double tokens) {
    StepSeconds best;
    for (const int64_t gather : {1, 2, 4, 8, 16, 32, 64})
      for (const int64_t x : {1, 4}) {
        ServeLayout l;
        l.n = 64, l.gather = gather, l.x = x, l.attention_by_batch = true;
        if (x > 1 && gather > 1) continue;
        l.partition = x > 1        ? Partition::kStationary2d
                      : gather > 1 ? Partition::kGathered
                                   : Partition::kStationary1d;
        const StepSeconds s =
            serve_step(m, c, {2048, 64, 0, Number::kBf16}, l, sequences, tokens, 1024);
        if (best.total() == 0 || s.comm < best.comm) best = s;
      }
    return best.layout;
  };
  EXPECT_EQ(best(64, 1).partition, Partition::kStationary2d);
  // Over √(T·n/f) devices by appendix A.2.2 there, for a layer of two matrices and no attention.
  for (const double sequences : {64.0, 128.0, 512.0}) {
    const ServeLayout l = best(sequences, 2048);
    EXPECT_EQ(l.partition, Partition::kGathered);
    const double formula = std::sqrt(sequences * 2048 * 64 / (4.0 * 18432));
    EXPECT_LE(std::abs(std::log2(static_cast<double>(l.gather) / formula)), 1) << l.gather;
  }
}

// Section 3.3 there: one key/value head by heads is on every device.
TEST(Serving, MultiQueryAttentionBySequences) {
  const ModelSpec m = preset("palm-540b");
  const ClusterSpec c = *parse_cluster("64xTPU-v4");
  const auto a = plan_serving(m, *count_params(m), c, {1920, 128, 0, Number::kI8});
  ASSERT_TRUE(a.ok()) << a.error().message;
  const double sequence = kv_bytes_per_token(m, 1) * 2048;
  EXPECT_EQ(a->kv_bytes_per_sequence, sequence);
  for (const ServePrice& p : a->best) {
    const double left = served_bytes(c.device) - p.weight_bytes;
    const bool by_batch = p.decode.layout.attention_by_batch;
    EXPECT_EQ(by_batch, p.prefill.layout.attention_by_batch);
    EXPECT_LE(p.kv_bytes, left);
    EXPECT_DOUBLE_EQ(p.kv_bytes, sequence * static_cast<double>(p.batch) /
                                     (by_batch ? static_cast<double>(p.n) : 1));
  }
}

TEST(Serving, TheLargestBatchIsWhatMemoryHolds) {
  const ModelSpec m = preset("llama3-8b");
  const ParamCount p = *count_params(m);
  const ClusterSpec c = *parse_cluster("H100");
  const auto a = plan_serving(m, p, c, {1024, 256, 0, Number::kBf16});
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(a->max_batch,
            static_cast<int64_t>((0.95 * 80e9 - 2 * 8030261248.0) / (1280 * 131072.0)));
  EXPECT_DOUBLE_EQ(a->context_switch_s, 2 * 1280 * 131072.0 / 63e9);
  // A batch that is asked for is kept, one that does not fit is refused with the numbers.
  EXPECT_EQ(plan_serving(m, p, c, {1024, 256, 7, Number::kBf16})->best[0].batch, 7);
  const auto none = plan_serving(m, p, c, {1024, 256, 4096, Number::kBf16});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("16.1 GB"), std::string::npos) << none.error().message;
}

TEST(Serving, WhatCannotBeServedSaysWhy) {
  const ModelSpec m = preset("llama3-405b");
  const auto none =
      plan_serving(m, *count_params(m), *parse_cluster("8xH100"), {64, 64, 0, Number::kBf16});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("811.7 GB"), std::string::npos) << none.error().message;
  EXPECT_TRUE(
      plan_serving(m, *count_params(m), *parse_cluster("8xH100"), {64, 64, 0, Number::kF8}).ok());
  const ModelSpec gpt2 = preset("gpt2");
  EXPECT_FALSE(
      plan_serving(gpt2, *count_params(gpt2), *parse_cluster("H100"), {1000, 100, 0, Number::kBf16})
          .ok());
  const ModelSpec lstm = preset("lstm-large");
  EXPECT_FALSE(
      plan_serving(lstm, *count_params(lstm), *parse_cluster("H100"), {10, 10, 0, Number::kBf16})
          .ok());
}

}  // namespace
}  // namespace tegula::planner
