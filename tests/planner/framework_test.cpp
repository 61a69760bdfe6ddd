// Conventions of frameworks: bytes written down here for one small layout, and what must follow
// from them whatever the numbers are.
#include "tegula/planner/framework.h"

#include <gtest/gtest.h>

#include "tegula/planner/answer.h"

namespace tegula::planner {
namespace {

Answer plan(const char* framework, const char* gpus, const char* fix,
            const char* optimizer = "adam") {
  Question q;
  q.model = "llama3-8b", q.gpus = gpus, q.seqlen = 2048, q.batch_tokens = 8 * 2048;
  q.fix = fix, q.framework = framework, q.optimizer = optimizer;
  auto a = answer(q);
  EXPECT_TRUE(a.ok()) << a.error().message;
  return std::move(*a);
}

TEST(Frameworks, BytesOfState) {
  const auto bytes = [](const char* framework, Optimizer optimizer) {
    Job job;
    job.framework = *find_framework(framework), job.optimizer = optimizer;
    const StateBytes s = state_bytes(job, {});
    return std::array{s.weights, s.gradients, s.optimizer};
  };
  EXPECT_EQ(bytes("tegula", Optimizer::kAdam), (std::array{2.0, 2.0, 12.0}));
  EXPECT_EQ(bytes("deepspeed", Optimizer::kAdam), (std::array{2.0, 2.0, 12.0}));
  EXPECT_EQ(bytes("megatron", Optimizer::kAdam), (std::array{2.0, 4.0, 12.0}));
  EXPECT_EQ(bytes("torch", Optimizer::kAdam), (std::array{4.0, 4.0, 8.0}));
  EXPECT_EQ(bytes("fsdp", Optimizer::kAdam), (std::array{4.0, 4.0, 8.0}));
  EXPECT_EQ(bytes("torch", Optimizer::kAdamPure), (std::array{2.0, 2.0, 4.0}));
}

// Autocast: products of a layer read casts, each its own; the stream is f32.
TEST(Frameworks, ALayerOfTorchKeepsWhatEachOpReads) {
  const Answer a = plan("torch", "8xH200", "dp=8,tp=1,pp=1,cp=1,zero=0,microbatch=1,remat=full");
  const StepPrice& p = a.found.smallest ? *a.found.smallest : a.found.best.at(0);
  RankShape s = rank_shape(p.layout, a.preset.model, a.job);
  EXPECT_EQ(s.stream_bytes, 4);
  const double t = 2048, h = 4096, kv = 1024, f = 14336;
  const double kept = t * (2 * 4 * h + (3 + 2) * 2 * h + 2 * (2 * h + 2 * kv) + 4 * 2 * f + 4 * 32);
  EXPECT_DOUBLE_EQ(saved_bytes(layer_work(a.preset.model, s), Remat::kNone, true), kept);
  // Compiled, casts are shared, and an activated gate is made again.
  s.framework = *find_framework("torch-compile");
  EXPECT_DOUBLE_EQ(saved_bytes(layer_work(a.preset.model, s), Remat::kNone, true),
                   kept - t * 2 * (3 * h + f));
}

TEST(Frameworks, GradientsTakeThePlaceOfActivations) {
  const Answer a = plan("torch", "1xB200", "microbatch=8,remat=full,loss=chunked", "adam-pure");
  const MemoryBytes& m = a.found.best.at(0).memory;
  const double with = m.gradients, without = m.activations + m.temporaries + m.copies;
  EXPECT_DOUBLE_EQ(m.total(), m.weights + m.optimizer + std::max(with, without));
  // Two micro-batches: gradients of the first are there while the second is computed.
  const Answer b = plan("torch", "1xB200", "microbatch=4,remat=full,loss=chunked", "adam-pure");
  const MemoryBytes& n = b.found.best.at(0).memory;
  EXPECT_DOUBLE_EQ(
      n.total(), n.weights + n.gradients + n.optimizer + n.activations + n.temporaries + n.copies);
}

TEST(Frameworks, WhatIsWrittenAndReadMoreTakesLonger) {
  const char* fix = "dp=8,tp=1,pp=1,cp=1,zero=3,microbatch=1,remat=full";
  const auto seconds = [&](const char* framework) {
    return plan(framework, "8xH200", fix).found.best.at(0).step_s();
  };
  EXPECT_LT(seconds("tegula"), seconds("torchtitan"));
  EXPECT_LT(seconds("torchtitan"), seconds("fsdp"));
}

TEST(Frameworks, KernelsOfAttentionHaveGenerations) {
  const auto seconds = [](const char* kernel) {
    return plan("", "8xH100", (std::string("attention=") + kernel + ",zero=1,microbatch=1").c_str())
        .found.best.at(0)
        .step_s();
  };
  EXPECT_LT(seconds("cudnn"), seconds("flash2"));
  EXPECT_LT(seconds("flash2"), seconds("flash1"));
  EXPECT_EQ(seconds("flash"), seconds("cudnn"));
}

TEST(Frameworks, ProductsAloneSlowTheClock) {
  const Accelerator a = *find_accelerator("h200");
  EXPECT_EQ(clock_share(a, 0), 1);
  EXPECT_EQ(clock_share(a, .8), .75);
  EXPECT_EQ(clock_share(a, 1), .75);
  EXPECT_GT(clock_share(a, .4), .9);
}

// Over a slow link a step is its messages: weights are gathered twice in two bytes, gradients
// summed once in four.
TEST(Frameworks, CopiesAreGatheredInTwoBytes) {
  Question q;
  q.model = "llama3-8b", q.gpus = "8xslow", q.seqlen = 2048, q.batch_tokens = 8 * 2048;
  q.framework = "fsdp", q.fix = "dp=8,tp=1,pp=1,cp=1,zero=3,microbatch=1,remat=full";
  q.devices = {{"slow", "h200", {{"inside-gb-per-s", .1}}}};
  const auto a = answer(q);
  ASSERT_TRUE(a.ok()) << a.error().message;
  const double bytes = (2 * 2 + 4) * static_cast<double>(a->params.total) * 7 / 8;
  EXPECT_NEAR(a->found.best.at(0).seconds.dp / (bytes / (.1e9 * kExpected.inside)), 1, .02);
}

TEST(Frameworks, ShardsAreNoStageOfWholeWeights) {
  const Answer a = plan("torchtitan", "8xH200", "microbatch=1");
  for (const StepPrice& p : a.found.best)
    EXPECT_GE(p.layout.zero_ranks() > 1 ? p.layout.zero : 2, 2);
  Question q;
  q.model = "llama3-8b", q.gpus = "8xH200", q.framework = "fsdp", q.fix = "dp=8,zero=1";
  const auto refused = answer(q);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("shards weights"), std::string::npos);
}

TEST(Frameworks, UnknownOnesAreNamed) {
  EXPECT_EQ(*find_framework(""), nullptr);
  const auto f = find_framework("jax");
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.error().message.find("torchtitan"), std::string::npos);
  Question q;
  q.model = "llama3-8b", q.framework = "megatron", q.built = true;
  EXPECT_FALSE(answer(q).ok());
}

}  // namespace
}  // namespace tegula::planner
