// What a family says it has is what changes what it computes: no flag is taken and then ignored.
#include <gtest/gtest.h>

#include "tegula/ir/text.h"
#include "tegula/train/step.h"

namespace tegula {
namespace {

struct Change {
  std::string_view flag;
  void (*apply)(ModelConfig&);
};
constexpr Change kChanges[] = {
    {"n-layers", [](ModelConfig& m) { m.n_layers = 3; }},
    {"n-heads", [](ModelConfig& m) { m.n_heads = 2; }},
    {"n-kv-heads", [](ModelConfig& m) { m.n_kv_heads = 2; }},
    {"head-dim", [](ModelConfig& m) { m.head_dim = 4; }},
    {"d-model", [](ModelConfig& m) { m.d_model = 16; }},
    {"d-ff", [](ModelConfig& m) { m.d_ff = 40; }},
    {"n-experts", [](ModelConfig& m) { m.n_experts = 5; }},
    {"experts-per-token", [](ModelConfig& m) { m.n_experts_per_token = 3; }},
    {"capacity-factor", [](ModelConfig& m) { m.capacity_factor = 0.5; }},
    {"balance-loss", [](ModelConfig& m) { m.balance_loss = 0.5; }},
    {"bias", [](ModelConfig& m) { m.has_bias = true; }},
    {"dropout", [](ModelConfig& m) { m.dropout = 0.5; }},
    {"seqlen", [](ModelConfig& m) { m.max_seqlen = 6; }}};

TEST(ModelFlags, HaveAChangeEach) {
  ASSERT_EQ(std::size(kChanges), std::size(kModelFlags));
  for (size_t i = 0; i < std::size(kChanges); ++i) EXPECT_EQ(kChanges[i].flag, kModelFlags[i].name);
}

// The text of a training step; "": the family refuses the sizes.
std::string step_of(const TrainConfig& c) {
  TrainConfig config = c;
  if (!config.model.resolve().ok()) return "";
  const auto f = build_step_functions(config);
  EXPECT_TRUE(f.ok());
  return to_text(*f->module);
}

TEST(ModelFlags, OfAFamilyAreThoseThatChangeItsStep) {
  for (const ModelDef* model : all_models()) {
    TrainConfig c;
    c.batch = 2;
    c.model.type = std::string(model->name);
    c.model.vocab_size = 9, c.model.n_layers = 2, c.model.n_heads = 4, c.model.d_model = 32;
    c.model.max_seqlen = 8;
    const std::string plain = step_of(c);
    ASSERT_FALSE(plain.empty());
    for (const Change& change : kChanges) {
      TrainConfig other = c;
      change.apply(other.model);
      const std::string text = step_of(other);
      EXPECT_EQ(has_option(*model, change.flag), !text.empty() && text != plain)
          << model->name << " " << change.flag;
    }
  }
}

}  // namespace
}  // namespace tegula
