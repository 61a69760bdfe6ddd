// Tests what a mixture of experts does in training only: bounded room, and the balance loss.
#include <gtest/gtest.h>

#include "tegula/ir/interpret.h"
#include "tegula/models/init.h"
#include "tegula/models/model.h"
#include "tegula/ops/math.h"

namespace tegula {
namespace {

constexpr int64_t kTokens = 8;

ModelConfig small_moe(double capacity_factor, double balance_loss) {
  ModelConfig m;
  m.type = "moe", m.vocab_size = 11, m.n_layers = 1, m.n_heads = 2, m.d_model = 8, m.d_ff = 6;
  m.max_seqlen = kTokens, m.n_experts = 4, m.n_experts_per_token = 2;
  m.capacity_factor = capacity_factor, m.balance_loss = balance_loss;
  EXPECT_TRUE(m.resolve().ok());
  return m;
}

// Loss and logits of sequences `first` to `first` + n. `zero` names the weights that are 0; the
// others are random.
std::vector<HostTensor> run(const ModelConfig& m, bool is_training, std::string_view zero,
                            int64_t first = 0, int64_t n = 1) {
  Module module;
  Builder b(module, "moe");
  Context c(b, m);
  c.is_training = is_training;
  const Type ids = {DType::kI32, {n, kTokens}};
  const Var tokens = b.param("tokens", ids), targets = b.param("targets", ids);
  const ModelDef& model = **find_model("moe");
  b.result("loss", model_loss(c, model, tokens, targets));
  b.result("logits", model_logits(c, model, tokens));
  std::vector<HostTensor> in(2, HostTensor(ids));
  for (int64_t i = 0; i < n * kTokens; ++i) {
    const int64_t s = first + i / kTokens, t = i % kTokens;
    in[0].put(i, (t + s * (t + 3)) % 11), in[1].put(i, 10 - t);
  }
  for (const WeightSpec& w : c.weights()) {
    in.emplace_back(w.type);
    WeightSpec spec = w;
    spec.stddev = 0.5;
    if (w.name.find(zero) != std::string::npos) spec.init = Init::kZeros;
    init_weight(spec, 1, in.back().ref());
  }
  const auto f = b.finish();
  EXPECT_TRUE(f.ok()) << f.error().to_string();
  auto out = interpret(module, *f, in);
  EXPECT_TRUE(out.ok()) << out.error().to_string();
  return *out;
}

// A router of zeros finds all experts equally likely, and takes the first two for every token.
constexpr std::string_view kRouter = "gate.weight";

TEST(Moe, BalanceLossIsItsCoefficientWhenAllExpertsAreEquallyLikely) {
  const ModelConfig m = small_moe(0, 0.25);
  EXPECT_NEAR(run(m, true, kRouter)[0].at(0) - run(m, false, kRouter)[0].at(0), 0.25, 1e-12);
  EXPECT_NE(run(m, true, "none")[0].at(0) - run(m, false, "none")[0].at(0), 0.25);
}

// Four of 8 tokens find room at the two experts: ceil(1 · 8 · 2 / 4) rows. The rest pass by.
TEST(Moe, TokensWithoutRoomPassByTheExperts) {
  const ModelConfig m = small_moe(1, 0);
  const HostTensor bounded = run(m, true, kRouter)[1], whole = run(m, false, kRouter)[1];
  const HostTensor without = run(m, false, "experts.w2.weight")[1];
  for (int64_t i = 0; i < whole.numel(); ++i) {
    const bool has_room = i / m.vocab_size < 4;
    EXPECT_EQ(bounded.at(i), has_room ? whole.at(i) : without.at(i)) << i;
    EXPECT_NE(whole.at(i), without.at(i)) << i;
  }
}

// Each shard has rows and a balance of its own, so that a sequence's part of the loss and its
// logits are those that it has alone, be the others ever so crowded.
TEST(Moe, ShardsOfABatchDoNotKnowOfOneAnother) {
  const ModelConfig m = small_moe(1, 0.25);
  double loss = 0;
  std::vector<double> logits;
  for (int64_t s = 0; s < 4; ++s) {
    const auto alone = run(m, true, "none", s);
    loss += alone[0].at(0) / 4;
    const auto values = alone[1].values();
    logits.insert(logits.end(), values.begin(), values.end());
    EXPECT_NE(alone[1].values(), run(m, false, "none", s)[1].values()) << "all find room: " << s;
  }
  const auto together = run(m, true, "none", 0, 4);
  EXPECT_EQ(together[1].values(), logits);
  EXPECT_NEAR(together[0].at(0), loss, 1e-12);
}

TEST(Moe, NothingIsDroppedWithoutABound) {
  const ModelConfig m = small_moe(0, 0);
  EXPECT_EQ(run(m, true, kRouter)[1].values(), run(m, false, kRouter)[1].values());
}

}  // namespace
}  // namespace tegula
