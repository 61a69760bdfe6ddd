// A layer's operations and bytes, op by op, against sums written down here; data sheets; links and
// collectives. A fault of one in a hundred in any of them is seen.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tegula/cost/collective.h"
#include "tegula/kernels/target.h"
#include "tegula/planner/layer_work.h"
#include "tegula/planner/model_presets.h"
#include "tegula/planner/other_kinds.h"

namespace tegula::planner {
namespace {

std::map<std::string, Work> by_name(const std::vector<Work>& list) {
  std::map<std::string, Work> map;
  for (const Work& w : list) map[std::string(w.name)] = w;
  return map;
}

// Llama 3 70B on one of 8 ranks, two sequences of 4096: every op.
TEST(LayerWork, LlamaOpByOp) {
  const ModelSpec m = find_model_preset("llama3-70b")->model;
  RankShape s;
  s.batch = 2, s.seqlen = 4096, s.tp = 8, s.sp = true;
  auto w = by_name(layer_work(m, s).forward);
  const double t = 8192, h = 8192, q = 1024, kv = 128, f = 3584;
  const auto expect = [&](const char* name, double flops, double bytes) {
    EXPECT_DOUBLE_EQ(w[name].flops, flops) << name;
    EXPECT_DOUBLE_EQ(w[name].bytes, bytes) << name;
    w.erase(name);
  };
  expect("norm of attention", 0, 4 * 2 * t * h / 8);
  expect("qkv", 2 * t * h * (q + 2 * kv), 2 * (t * h + h * (q + 2 * kv) + t * (q + 2 * kv)));
  expect("rope", 0, 2 * 2 * t * (q + kv));
  expect("attention", 4 * 2 * (4096.0 * 4097 / 2) * q, 2 * t * (2 * q + 2 * kv));
  expect("attention out", 2 * t * q * h, 2 * (t * q + q * h + t * h));
  expect("norm of feed-forward", 0, 4 * 2 * t * h / 8);
  expect("ff gate", 2 * t * h * f, 2 * (t * h + h * f + t * f));
  expect("ff up", 2 * t * h * f, 2 * (t * h + h * f + t * f));
  expect("ff down", 2 * t * h * f, 2 * (t * h + h * f + t * f));
  expect("activation", 0, 3 * 2 * t * f);
  EXPECT_TRUE(w.empty()) << w.begin()->first;
}

// All that ranks do together is what the whole does, and what a token is priced at.
TEST(LayerWork, RanksShareTheFlopsOfTheWhole) {
  for (const char* name : {"gpt3-13b", "llama3-8b", "mixtral-8x7b", "mistral-7b", "palm-540b",
                           "gopher-280b", "lstm-large", "mlp"}) {
    const ModelSpec m = find_model_preset(name)->model;
    for (const double ranks : {1.0, 2.0, 4.0}) {
      if (m.kind != ModelKind::kDecoder && ranks > 1) continue;
      RankShape s;
      s.batch = 3, s.seqlen = 512;
      // The one key/value head of PaLM is on every rank.
      s.tp = m.n_kv_heads == 1 ? 1 : ranks;
      s.cp = m.n_kv_heads == 1 ? ranks : 1;
      double forward = 0, backward = 0, attention = 0;
      const double layers = static_cast<double>(m.n_layers) - (m.kind == ModelKind::kMlp ? 1 : 0);
      const auto add = [&](const LayerWork& w, double times) {
        for (const Work& x : w.forward) {
          const bool is_router = x.name == "router";  // every rank of tp decides for all tokens
          forward += times * x.flops / (is_router ? s.tp : 1);
          if (x.unit == Unit::kAttention) attention += times * x.flops;
        }
        for (const auto* list : {&w.input_backward, &w.weight_backward})
          for (const Work& x : *list)
            if (x.unit == Unit::kMatmul)
              backward += times * x.flops / (x.name == "router" ? s.tp : 1);
      };
      add(layer_work(m, s), layers);
      add(embedding_work(m, s), 1);
      add(head_work(m, s), 1);
      const TokenFlops token = token_flops(m, 512);
      const double tokens = 3 * 512 / ranks;
      EXPECT_NEAR(forward, tokens * (token.layers + token.head + token.causal_attention),
                  1e-9 * forward)
          << name << " over " << ranks;
      EXPECT_NEAR(attention, tokens * token.causal_attention, 1e-9 * attention) << name;
      EXPECT_NEAR(backward, 2 * tokens * (token.layers + token.head), 1e-9 * backward) << name;
    }
  }
}

TEST(Accelerators, MeasuredSharesOfFewRows) {
  Accelerator a;
  a.flops_per_s[static_cast<int>(Number::kF32)] = 1e12, a.memory_bytes_per_s = 1e15;
  a.matmul_shares = {{1, 0.05}, {16, 0.4}, {256, 0.8}}, a.sustained.memory = 1;
  const auto seconds = [&](double rows) {
    return price(matmul_work("x", rows, 512, 512, 4), a, kExpected, Number::kF32).seconds;
  };
  const auto exactly = [](double rows, double share) {
    return rows * 2 * 512 * 512 / (1e12 * share);
  };
  for (const auto& [rows, share] : {std::pair{1.0, 0.05}, {16.0, 0.4}, {256.0, 0.8}, {4096.0, 0.8}})
    EXPECT_NEAR(seconds(rows) / exactly(rows, share), 1, 1e-12) << rows;
  EXPECT_NEAR(seconds(4) / exactly(4, std::sqrt(0.05 * 0.4)), 1, 1e-12);  // halfway in logarithms
  a.matmul_shares.clear();
  EXPECT_NEAR(seconds(16) / exactly(16, a.sustained.product), 1, 1e-12);
}

TEST(Accelerators, DataSheets) {
  const struct {
    const char* name;
    double bf16, gb, gb_per_s, inside, between;
  } sheets[] = {
      {"V100", 125e12, 32, 900, 150, 12.5},      {"A100", 312e12, 80, 2039, 300, 25},
      {"A100-PCIe", 312e12, 80, 1935, 31.5, 25}, {"A100-40GB", 312e12, 40, 1555, 300, 25},
      {"H100", 989e12, 80, 3350, 450, 50},       {"H100-PCIe", 756e12, 80, 2000, 63, 50},
      {"H200", 989e12, 141, 4800, 450, 50},      {"L4", 121e12, 24, 300, 31.5, 12.5},
      {"T4", 65e12, 16, 320, 15.8, 6.25},        {"MI300X", 1307.4e12, 192, 5300, 448, 50},
      {"TPU-v4", 275e12, 32, 1200, 150, 3.1},    {"TPU-v5p", 459e12, 95, 2765, 300, 6.25}};
  for (const auto& s : sheets) {
    const auto a = find_accelerator(s.name);
    ASSERT_TRUE(a.ok()) << s.name;
    EXPECT_EQ(a->peak(Number::kBf16), s.bf16) << s.name;
    EXPECT_EQ(a->memory_bytes, s.gb * 1e9) << s.name;
    EXPECT_EQ(a->memory_bytes_per_s, s.gb_per_s * 1e9) << s.name;
    EXPECT_EQ(a->inside.bytes_per_s, s.inside * 1e9) << s.name;
    EXPECT_EQ(a->between.bytes_per_s, s.between * 1e9) << s.name;
  }
  int known = 0;
  for (const Accelerator& a : accelerator_presets())
    if (a.visible_bytes > 0) {
      const Target t = *find_target(a.name);
      EXPECT_EQ(a.peak(Number::kBf16), t.bf16_flops_per_s);
      EXPECT_EQ(a.multiprocessors, t.multiprocessors);
      ++known;
    }
  EXPECT_EQ(known, 7);  // a100, h100, h200, a10g, l4, l40s, rtx4090
}

TEST(Accelerators, OtherKindsAreRefusedWithWhatIsMissing) {
  EXPECT_GE(other_kinds().size(), 11U);
  int priced = 0;
  for (const OtherKind& k : other_kinds()) {
    const auto c = parse_cluster(cat("16x", k.name));
    ASSERT_FALSE(c.ok()) << k.name;
    EXPECT_EQ(c.error().code, Code::kUnsupported);
    for (const std::string_view words : {k.name, k.executes, k.missing})
      EXPECT_NE(c.error().message.find(words), std::string::npos) << c.error().message;
    EXPECT_EQ(k.price == nullptr, !k.missing.empty()) << k.name;
    const OtherCluster found = find_other_cluster(cat("16x", k.name));
    EXPECT_EQ(found.kind, k.price ? &k : nullptr) << k.name;
    if (k.price) EXPECT_EQ(found.n, 16);
    if (k.price) ++priced;
  }
  EXPECT_EQ(priced, 6);
  EXPECT_EQ(find_other_kind("Groq LPU"), find_other_kind("groq-lpu"));
  EXPECT_EQ(find_other_kind("h100"), nullptr);
}

TEST(Clusters, LinksOfGroups) {
  const ClusterSpec c = *parse_cluster("64xH100");
  EXPECT_EQ(link_of(c, {8, 1}).bytes_per_s, 450e9);
  EXPECT_EQ(link_of(c, {8, 8}).bytes_per_s, 50e9);    // one rank a node
  EXPECT_EQ(link_of(c, {16, 4}).bytes_per_s, 100e9);  // two of them
  EXPECT_EQ(link_of(c, {16, 1}).bytes_per_s, 400e9);
  EXPECT_EQ(own_link(c, {16, 1}).bytes_per_s, 50e9);
  EXPECT_EQ(own_link(c, {2, 4}).bytes_per_s, 450e9);
}

TEST(Collectives, RingAndTreeByTheirFormulas) {
  const Link link{100e9, 5e-6};
  const double m = 1e9, g = 1e-12;
  for (const int64_t n : {2, 3, 8, 64}) {
    const double p = static_cast<double>(n), log = std::ceil(std::log2(p));
    EXPECT_DOUBLE_EQ(seconds_of(Collective::kAllReduce, Algorithm::kRing, m, n, link, g),
                     2 * (p - 1) * 5e-6 + (p - 1) / p * m * (2 / 100e9 + g));
    EXPECT_DOUBLE_EQ(seconds_of(Collective::kAllReduce, Algorithm::kTree, m, n, link, g),
                     2 * log * (5e-6 + m / 100e9) + log * m * g);
    EXPECT_DOUBLE_EQ(seconds_of(Collective::kAllGather, Algorithm::kRing, m, n, link),
                     (p - 1) * 5e-6 + (p - 1) / p * m / 100e9);
    EXPECT_DOUBLE_EQ(seconds_of(Collective::kAllToAll, Algorithm::kRing, m, n, link),
                     (p - 1) * 5e-6 + (p - 1) / p * m / 100e9);
    if (n == 2) continue;  // there both are one exchange
    const double cross = crossover_bytes(Collective::kAllReduce, n, link, g);
    const auto ring_wins = [&](double bytes) {
      return seconds_of(Collective::kAllReduce, Algorithm::kRing, bytes, n, link, g) <
             seconds_of(Collective::kAllReduce, Algorithm::kTree, bytes, n, link, g);
    };
    if (n > 3) EXPECT_FALSE(ring_wins(0.99 * cross)) << n;
    EXPECT_TRUE(ring_wins(1.01 * cross + 1)) << n;
  }
}

TEST(Layouts, TheFirstDivisibilityThatFails) {
  const ModelSpec m = find_model_preset("llama3-8b")->model;
  const ClusterSpec c = *parse_cluster("16xH100");
  Job job;
  job.seqlen = 8192, job.batch_tokens = 64 * 8192;
  const auto says = [&](auto change, std::initializer_list<const char*> words) {
    Layout l;
    l.dp = 16;
    change(l);
    const Status s = check_layout(l, m, c, job);
    ASSERT_FALSE(s.ok());
    for (const char* w : words)
      EXPECT_NE(s.error().message.find(w), std::string::npos) << s.error().message;
  };
  says([](Layout& l) { l.tp = 2; }, {"32", "16"});
  says([](Layout& l) { l.dp = 1, l.tp = 16, l.sp = false, l.pp = 1, l.ep = 3; },
       {"n_experts 1", "ep 3"});
  says([](Layout& l) { l.dp = 1, l.pp = 16, l.turns = Turns::kInterleaved, l.interleave = 3; },
       {"n_layers 32", "pp 16", "interleave 3"});
  says([](Layout& l) { l.microbatch = 3; }, {"sequences 4", "microbatch 3"});
  says([](Layout& l) { l.sp = true; }, {"sp", "tp"});
  says([](Layout& l) { l.interleave = 2; }, {"interleaved"});
  job.batch_tokens = 8 * 8192;
  says([](Layout&) {}, {"sequences 8", "dp 16"});
  job.seqlen = 8, job.batch_tokens = 64 * 8;
  says([](Layout& l) { l.dp = 2, l.cp = 8; }, {"seqlen 8", "2 · cp 16"});
}

}  // namespace
}  // namespace tegula::planner
