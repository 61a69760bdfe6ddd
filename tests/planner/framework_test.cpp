// Conventions of frameworks: bytes written down here for one small layout, and what must follow
// from them whatever the numbers are.
#include "tegula/planner/framework.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  EXPECT_DOUBLE_EQ(saved_bytes(layer_work(a.preset.model, s), Remat::kNone, Selective::kNorms),
                   kept);
  // Compiled, casts are shared, and an activated gate is made again.
  s.framework = *find_framework("torch-compile");
  EXPECT_DOUBLE_EQ(saved_bytes(layer_work(a.preset.model, s), Remat::kNone, Selective::kNorms),
                   kept - t * 2 * (3 * h + f));
}

// torchtitan keeps a layer's input, q, v, attention, the first and the last product of the
// feed-forward layer: of q, k, v, out, w1, w3, w2 every other one.
TEST(Frameworks, EveryOtherProductIsKept) {
  const Answer a =
      plan("torchtitan", "8xH200", "dp=8,tp=1,pp=1,cp=1,zero=3,microbatch=1,remat=selective");
  const StepPrice& p = a.found.smallest ? *a.found.smallest : a.found.best.at(0);
  const RankShape s = rank_shape(p.layout, a.preset.model, a.job);
  const double t = 2048, h = 4096, kv = 1024, f = 14336;
  const LayerWork work = layer_work(a.preset.model, s);
  EXPECT_DOUBLE_EQ(saved_bytes(work, Remat::kSelective, Selective::kProducts),
                   2 * t * (h + h + kv + h + f + h) + 4 * t * 32);
  double products = 0;
  for (const Work& w : work_again(work, Remat::kSelective, Selective::kProducts))
    if (w.unit == Unit::kMatmul) products += w.flops;
  EXPECT_DOUBLE_EQ(products, 2 * t * h * (kv + h + f));
  // Half of the layers by halves.
  StepPricer pricer(a.preset.model, a.params, *a.cluster, a.job);
  Layout l = p.layout;
  const auto layer = [&](Remat remat) {
    l.remat = remat;
    return pricer.layer(l);
  };
  const LayerPrice none = layer(Remat::kNone), full = layer(Remat::kFull),
                   half = layer(Remat::kEveryOther);
  EXPECT_DOUBLE_EQ(half.activations.layer, (none.activations.layer + full.activations.layer) / 2);
  EXPECT_DOUBLE_EQ(half.recompute.total(), full.recompute.total() / 2);
  EXPECT_DOUBLE_EQ(half.activations.working, full.activations.working);
  EXPECT_DOUBLE_EQ(half.products_again, 0.5);
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

// Op by op from Python: a step of few tokens waits for the host, one of many does not; wrapped
// layers and parameters' hooks take more of it.
TEST(Frameworks, AStepOfFewTokensWaitsForItsHost) {
  const auto priced = [](const char* framework, int64_t seqlen, const char* fix) {
    Question q;
    q.model = "gpt2", q.gpus = "8xH200", q.seqlen = seqlen, q.batch_tokens = 8 * seqlen;
    q.framework = framework, q.fix = fix;
    auto a = answer(q);
    EXPECT_TRUE(a.ok()) << a.error().message;
    const StepPrice p = a->found.best.at(0);
    EXPECT_LE(a->intervals.at(0).low, p.step_s());
    EXPECT_GE(a->intervals.at(0).high, p.step_s());
    double sum = 0;
    for (const auto& term : p.seconds.parts()) sum += term.value;
    EXPECT_DOUBLE_EQ(sum, p.step_s());
    return p;
  };
  const char* ddp = "dp=8,tp=1,pp=1,cp=1,zero=0,microbatch=1,remat=none";
  const char* sharded = "dp=8,tp=1,pp=1,cp=1,zero=3,microbatch=1,remat=none";
  const StepPrice few = priced("torch", 64, ddp);
  EXPECT_EQ(few.bound_by(), "host");
  // 12 layers of 4 products and 2 norms at 198 µs under autocast, 8 views, attention, activation
  // and 2 sums at 30; 6 parameters at 39.5.
  EXPECT_NEAR(few.step_s(), 12 * (6 * 198e-6 + 12 * 30e-6 + 6 * 39.5e-6), 1e-9);
  const StepPrice wrapped = priced("fsdp", 64, sharded);
  EXPECT_GT(wrapped.step_s(), 12 * 3.8e-3);
  EXPECT_EQ(priced("tegula", 64, ddp).seconds.host, 0);
  const char* many = "dp=8,tp=1,pp=1,cp=1,zero=0,microbatch=32,remat=none";
  Question q;
  q.model = "gpt2", q.gpus = "8xH200", q.seqlen = 1024, q.batch_tokens = 8 * 32 * 1024;
  q.framework = "torch", q.fix = many;
  EXPECT_EQ(answer(q)->found.best.at(0).seconds.host, 0);
}

// A message wins beside other work: .68 of its time, less 40 µs; the last layer's never hides.
TEST(Frameworks, ShortMessagesHideLess) {
  const char* fix = "dp=8,tp=1,pp=1,cp=1,zero=0,microbatch=4,remat=none";
  const auto dp = [&](const char* framework) {
    Question q;
    q.model = "gpt2-xl", q.gpus = "8xH200", q.seqlen = 1024, q.batch_tokens = 8 * 4 * 1024;
    q.framework = framework, q.fix = fix;
    return answer(q)->found.best.at(0).seconds.dp;
  };
  EXPECT_LT(dp("deepspeed"), dp("megatron") / 2 * .36);  // of 2 and 4 bytes
  EXPECT_GT(dp("deepspeed"), dp("megatron") / 2 * (1 - .68));
  EXPECT_GT(dp("torch"), dp("megatron") * (1 - .68));  // 25 MiB a message, of 4 bytes an element
  EXPECT_LT(dp("torch"), dp("megatron"));
}

TEST(Intervals, AreWideWhereNothingWasMeasured) {
  const auto width = [](const char* gpus) {
    Question q;
    q.model = "gpt2", q.gpus = gpus, q.seqlen = 1024, q.batch_tokens = 8 * 8 * 1024;
    const auto a = answer(q);
    const bool is_said = std::any_of(a->notes.begin(), a->notes.end(), [](const std::string& n) {
      return n.find("the interval is wide") != n.npos;
    });
    return std::pair{a->intervals.at(0).high / a->intervals.at(0).low, is_said};
  };
  EXPECT_FALSE(width("8xH200").second);
  EXPECT_TRUE(width("8xRTX4090").second);
  EXPECT_GT(width("8xRTX4090").first, 1.3 * width("8xH200").first);
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
  EXPECT_NEAR(a->found.best.at(0).seconds.dp / (bytes / (.1e9 * .78)), 1, .02);
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
