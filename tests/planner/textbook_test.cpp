// The planner beside the textbook's formulas, which stand apart in textbook.h, and beside the
// numbers that lectures and papers print.
#include "tests/planner/textbook.h"

#include <gtest/gtest.h>

#include "tegula/planner/model_presets.h"
#include "tegula/planner/search.h"

namespace tegula::planner {
namespace {

ModelSpec preset(std::string_view name) { return find_model_preset(name)->model; }

Job job_of(int64_t seqlen, int64_t sequences) {
  Job j;
  j.seqlen = seqlen, j.batch_tokens = seqlen * sequences;
  return j;
}

ClusterSpec cluster_of(std::string_view text) { return *parse_cluster(text); }

StepPrice price_of(const ModelSpec& m, const ClusterSpec& c, const Job& j, const Layout& l) {
  const Status s = check_layout(l, m, c, j);
  EXPECT_TRUE(s.ok()) << s.error().message;
  return StepPricer(m, *count_params(m), c, j).price(l);
}

TEST(Textbook, SixNIsTheProductsShare) {
  for (const char* name : {"gpt3-175b", "llama2-70b", "bloom-176b"}) {
    const ModelSpec m = preset(name);
    const ParamCount p = *count_params(m);
    const TokenFlops f = token_flops(m, 2048);
    // N of products: all weights but positions, norms and biases; the head is one whether tied or
    // not. What is left of 6N is less than a thousandth.
    const double n = real(m.is_tied ? p.total : p.total - p.embedding);
    EXPECT_NEAR(3 * (f.layers + f.head), textbook::train_flops_6n(n, 1), 1e-3 * 6 * n) << name;
  }
}

TEST(Textbook, MlpForwardAndBackward) {
  const ModelSpec m = preset("gpt3-125m");
  RankShape s;
  s.batch = 3, s.seqlen = 128;
  const LayerWork w = layer_work(m, s);
  const double b = 3 * 128, h = 768, n = 4 * 768;
  for (const Work& f : w.forward)
    if (f.name == "ff up") EXPECT_EQ(f.flops, textbook::mlp_forward(b, n, h));
  double backward = 0;
  for (const auto* list : {&w.input_backward, &w.weight_backward})
    for (const Work& f : *list)
      if (f.name == "ff up") backward += f.flops;
  EXPECT_EQ(backward, textbook::mlp_backward(b, n, h));
}

// Saved tensors of one layer, as the planner lists them one by one.
TEST(Textbook, ActivationsOfALayer) {
  for (const char* name : {"gpt3-175b", "mt-nlg-530b", "gpt2-xl"}) {
    const ModelSpec m = preset(name);
    const double h = real(m.d_model), a = real(m.n_heads);
    for (const double seqlen : {1024.0, 2048.0})
      for (const double t : {1.0, 4.0}) {
        RankShape r;
        r.batch = 2, r.seqlen = seqlen, r.tp = t, r.flash = false;
        const auto saved = [&](Remat remat) {
          return saved_bytes(layer_work(m, r), remat, Selective::kScores);
        };
        EXPECT_DOUBLE_EQ(saved(Remat::kNone), textbook::activations_tp(seqlen, 2, h, a, t));
        if (t == 1) EXPECT_DOUBLE_EQ(saved(Remat::kNone), textbook::activations(seqlen, 2, h, a));
        if (t == 1) EXPECT_DOUBLE_EQ(input_bytes(m, r), textbook::activations_full(seqlen, 2, h));
        r.sp = true;
        EXPECT_DOUBLE_EQ(saved(Remat::kNone), textbook::activations_tp_sp(seqlen, 2, h, a, t));
        EXPECT_DOUBLE_EQ(saved(Remat::kSelective),
                         textbook::activations_selective(seqlen, 2, h, t));
      }
  }
}

TEST(Textbook, ZeroStates) {
  const ModelSpec m = preset("gpt2");
  const double psi = real(count_params(m)->total);
  const ClusterSpec c = cluster_of("64xA100");
  for (int stage = 0; stage < 4; ++stage) {
    Layout l;
    l.dp = 64, l.zero = stage;
    const MemoryBytes b = price_of(m, c, job_of(1024, 64), l).memory;
    EXPECT_DOUBLE_EQ(b.weights + b.gradients + b.optimizer, textbook::zero_bytes(stage, psi, 64))
        << stage;
  }
  // The paper's own figure: 7.5 billion parameters on 64 ranks.
  const double printed[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_NEAR(textbook::zero_bytes(stage, 7.5e9, 64) / 1e9, printed[stage], 0.05);
}

TEST(Textbook, ZeroTraffic) {
  const double bytes = 1e9;
  const int64_t n = 64;
  const double all_reduce = bytes_sent(Collective::kAllReduce, bytes, n);
  const double reduce = bytes_sent(Collective::kReduceScatter, bytes, n);
  const double gather = bytes_sent(Collective::kAllGather, bytes, n);
  EXPECT_DOUBLE_EQ(all_reduce, 2 * 63.0 / 64 * bytes);
  EXPECT_DOUBLE_EQ((reduce + gather) / all_reduce, textbook::zero_traffic(2));
  EXPECT_DOUBLE_EQ((reduce + 2 * gather) / all_reduce, textbook::zero_traffic(3));
  // And in seconds of a step, where nothing is hidden and only bytes sent take time.
  const ModelSpec m = preset("gpt3-1.3b");
  ClusterSpec c = cluster_of("8xA100");
  c.device.inside.seconds = 0;
  c.device.memory_bytes_per_s = 1e30;
  double seconds[4];
  for (int stage = 0; stage < 4; ++stage) {
    Layout l;
    l.dp = 8, l.zero = stage;
    StepPricer pricer(m, *count_params(m), c, job_of(2048, 8), kSlow);  // overlap 0
    seconds[stage] = pricer.price(l).seconds.dp;
  }
  for (int stage = 1; stage < 4; ++stage)
    EXPECT_NEAR(seconds[stage] / seconds[0], textbook::zero_traffic(stage), 1e-12) << stage;
}

TEST(Textbook, MegatronsStepFlops) {
  const ModelSpec m = preset("gpt3-175b");
  const double s = 2048, l = 96, h = 12288, v = 50257;
  Job job = job_of(2048, 1536);
  job.flash = false;  // all keys
  const ClusterSpec c = cluster_of("1536xA100");
  Layout layout;
  layout.dp = 16, layout.tp = 8, layout.pp = 12, layout.sp = true;
  const StepPrice none = price_of(m, c, job, layout);
  EXPECT_NEAR(none.flops_model, textbook::korthikanti_model_flops(1536, s, l, h, v),
              1e-9 * none.flops_model);
  layout.remat = Remat::kFull;
  const StepPrice full = price_of(m, c, job, layout);
  EXPECT_EQ(full.flops_model, none.flops_model);
  // Megatron's formula lets the head, too, go forward twice: 6 of V s h a token where here are 6,
  // against 8 for layers: 96/16 = 6.
  EXPECT_NEAR(full.flops_hw, textbook::megatron_step_flops(1536, s, l, h, v), 1e-9 * full.flops_hw);
}

TEST(Textbook, MfuIsThreeQuartersOfHfuUnderFullRecomputation) {
  ModelSpec m = preset("gpt3-175b");
  Job job = job_of(2048, 1536);
  job.flash = false;
  const ClusterSpec c = cluster_of("1536xA100");
  Layout layout;
  layout.dp = 16, layout.tp = 8, layout.pp = 12, layout.sp = true, layout.remat = Remat::kFull;
  const StepPrice p = price_of(m, c, job, layout);
  // The FLOPs of the layers; the head is not computed again.
  const double head = 3 * token_flops(m, 2048).head * real(job.batch_tokens);
  EXPECT_DOUBLE_EQ((p.flops_model - head) / (p.flops_hw - head), 0.75);
}

TEST(Textbook, KvCache) {
  const ModelSpec m = preset("gpt2");
  EXPECT_EQ(kv_bytes_per_token(m, 2), 2 * 12 * textbook::kv_cache_elements(1, 1, 64, 12));
  // Grouped queries: by the key/value heads.
  EXPECT_EQ(kv_bytes_per_token(preset("llama3-8b"), 2), 131072);
}

TEST(Textbook, Bubbles) {
  ModelSpec m = preset("gpt3-175b");
  m.vocab_size = 128;  // stages alike: next to no head
  const ClusterSpec c = cluster_of("8xA100");
  Layout l;
  l.pp = 8;
  const auto bubble = [&](int64_t sequences) {
    const StepPrice p = price_of(m, c, job_of(2048, sequences), l);
    const double rest =
        p.step_s() - p.seconds.bubble - p.seconds.pp - p.seconds.dp - p.seconds.optimizer;
    return p.seconds.bubble / rest;
  };
  StepPricer of_one(m, *count_params(m), c, job_of(2048, 8));
  const LayerPrice& p = of_one.layer(l);
  const double head =
      (p.last_forward.total() + p.last_input_backward.total() + p.last_weight_backward.total()) /
      12 / (p.forward.total() + p.input_backward.total() + p.weight_backward.total());
  ASSERT_LT(head, 0.001);
  for (const int64_t n : {8, 32, 64}) {
    for (const Turns t : {Turns::kOneFOneB, Turns::kGpipe}) {
      l.turns = t;
      const double share = bubble(n);
      // The last stage alone has the head.
      EXPECT_NEAR(share, textbook::bubble_of_ideal(8, real(n)), head * share + 1e-9);
      EXPECT_NEAR(share / (1 + share), textbook::bubble_of_total(8, real(n)), head * share + 1e-9);
    }
    l.turns = Turns::kInterleaved, l.interleave = 3;
    EXPECT_NEAR(bubble(n), textbook::bubble_of_ideal_interleaved(8, real(n), 3), 1e-9);
    l.interleave = 1;
  }
  // ZB-H1 leaves (p − 1)(F + B − W), a third where F, B and W are alike.
  l.turns = Turns::kZeroBubble;
  StepPricer pricer(m, *count_params(m), c, job_of(2048, 32));
  const LayerPrice& layer = pricer.layer(l);
  const double f = layer.forward.total(), b = layer.input_backward.total(),
               w = layer.weight_backward.total();
  EXPECT_NEAR(bubble(32) / textbook::bubble_of_ideal(8, 32), (f + b - w) / (f + b + w), 1e-3);
}

TEST(Textbook, MicroBatchesInFlight) {
  Layout l;
  l.pp = 8;
  EXPECT_EQ(layers_in_flight(l, 32, 0, 4), 4 * 8);  // D for 1F1B's first stage, 1 for its last
  EXPECT_EQ(layers_in_flight(l, 32, 7, 4), 4);
  l.turns = Turns::kGpipe;
  EXPECT_EQ(layers_in_flight(l, 32, 3, 4), 4 * 32);  // N for GPipe
  l.turns = Turns::kInterleaved, l.interleave = 4;
  // p·(1 + (p − 1)/(p·v)) of Korthikanti et al. 2022, section 4.2.3.
  EXPECT_NEAR(layers_in_flight(l, 32, 0, 4), 4 * 8 * (1 + 7.0 / (8 * 4)), 1e-12);
}

// Lectures: "Efficiency", on A100s.
TEST(Lecture, Intensities) {
  EXPECT_NEAR(textbook::matmul_intensity(8192, 128, 8192), 124.1, 0.05);
  EXPECT_NEAR(textbook::matmul_intensity(8192, 8192, 8192), 2730.6, 0.1);
  const Work thin = matmul_work("thin", 8192, 128, 8192, 2);
  const Work square = matmul_work("square", 8192, 8192, 8192, 2);
  EXPECT_DOUBLE_EQ(thin.flops / thin.bytes, textbook::matmul_intensity(8192, 128, 8192));
  EXPECT_DOUBLE_EQ(square.flops / square.bytes, textbook::matmul_intensity(8192, 8192, 8192));
  const Accelerator pcie = *find_accelerator("a100-pcie");
  EXPECT_EQ(std::floor(pcie.ridge(Number::kBf16)), 161);
  EXPECT_EQ(price(thin, pcie, {1, 1, 1, 1, 1, 1}, Number::kBf16).bound, Bound::kMemory);
  EXPECT_EQ(price(square, pcie, {1, 1, 1, 1, 1, 1}, Number::kBf16).bound, Bound::kCompute);
}

TEST(Lecture, TokensThatTurnDecodingComputeBound) {
  // Chen 2022: 312 TFLOP/s over 1.5 TB/s, a weight of two bytes for two operations.
  EXPECT_EQ(312 / 1.5, 208);
  const Accelerator a = *find_accelerator("a100-40gb");
  EXPECT_NEAR(a.ridge(Number::kBf16), 208, 0.04 * 208);  // its sheet says 1.555 TB/s: 200.6
}

TEST(Lecture, Gpt3InGigabytes) {
  const double n = 175e9;
  EXPECT_EQ(2 * n / 1e9, 350);
  EXPECT_EQ(4 * n / 1e9, 700);
  EXPECT_EQ(12 * n / 1e9, 2100);
  // The planner's states of the counted 174.6 billion: the same to the digits of "175B".
  Layout l;
  l.dp = 1;
  const RankParams p = rank_params(preset("gpt3-175b"), *count_params(preset("gpt3-175b")), l);
  const double params = 96 * p.layer + p.first + p.last;
  const StateBytes s = state_bytes(job_of(2048, 1), preset("gpt3-175b"));
  EXPECT_NEAR(s.weights * params / 1e9, 350, 1);
  EXPECT_NEAR(s.optimizer * params / 1e9, 2100, 6);
  // A batch of 3.2 million rows of width 12288 at a layer's edge, and 96 of "78 GB".
  EXPECT_NEAR(3.2e6 * 12288 * 2 / 1e9, 78.64, 0.005);
  EXPECT_NEAR(3.2e6 * 12288 * 4 / 1e9, 157.28, 0.01);  // 157.286: the lecture cuts it off
  EXPECT_EQ(96 * 78, 7488);
  EXPECT_EQ(96 * 156, 14976);
  RankShape r;
  r.batch = 3.2e6, r.seqlen = 1;
  EXPECT_NEAR(input_bytes(preset("gpt3-175b"), r) / 1e9, 78.64, 0.005);
}

// Zhao et al. 2024, figure 1 and section 1: LLaMA 7B on one device, a batch of 256 tokens. BF16: 14
// GB of weights, 42 of gradients and Adam's state, 2 of activations, 58 in all. GaLore: 22 GB.
TEST(Lecture, GaloresBars) {
  const ModelSpec m = preset("llama2-7b");
  const ClusterSpec c = cluster_of("A100");
  Job job = job_of(256, 1);
  const auto bar = [&](Optimizer o) {
    job.optimizer = o;
    return price_of(m, c, job, {}).memory;
  };
  const MemoryBytes bf16 = bar(Optimizer::kAdamPure);
  EXPECT_EQ(std::round(bf16.weights / 1e9), 13);  // 13.48: the paper rounds 7 billion up
  EXPECT_NEAR((bf16.gradients + bf16.optimizer) / 1e9, 3 * 13.48, 0.01);
  EXPECT_NEAR(bf16.total() / 1e9, 58, 4);
  const MemoryBytes eight = bar(Optimizer::kAdam8bit), galore = bar(Optimizer::kGalore);
  EXPECT_DOUBLE_EQ(eight.optimizer, bf16.optimizer / 2);
  EXPECT_LT(galore.total(), 24e9);  // a consumer's card holds it
  EXPECT_NEAR(galore.total() / 1e9, 22, 2);
  EXPECT_NEAR(1 - galore.optimizer / bf16.optimizer, 0.825, 0.03);  // "up to 82.5 %"
}

}  // namespace
}  // namespace tegula::planner
