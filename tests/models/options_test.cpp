// What a family says it has is what changes what it computes: no flag is taken and then ignored.
#include <gtest/gtest.h>

#include <algorithm>

#include "tegula/ir/text.h"
#include "tegula/train/step.h"

namespace tegula {
namespace {

struct Change {
  std::string_view flag;
  SettingValue value;
};
const Change kChanges[] = {{"n-layers", int64_t{3}},
                           {"n-heads", int64_t{2}},
                           {"n-kv-heads", int64_t{2}},
                           {"head-dim", int64_t{4}},
                           {"d-model", int64_t{16}},
                           {"d-ff", int64_t{40}},
                           {"n-experts", int64_t{5}},
                           {"experts-per-token", int64_t{3}},
                           {"bias", true},
                           {"tie-embeddings", false},
                           {"tie-embeddings", true},
                           {"seqlen", int64_t{6}},
                           {"window", int64_t{3}},
                           {"attention-softcap", 7.0},
                           {"logit-softcap", 7.0},
                           {"norm", std::string("post")},
                           {"activation", std::string("relu")},
                           {"positions", std::string("rope")},
                           {"capacity-factor", 0.5},
                           {"balance-loss", 0.5},
                           {"dropout", 0.5}};

TEST(ModelFlags, HaveAChangeEach) {
  for (const Setting* s : all_settings())
    EXPECT_TRUE(s->flag.empty() || std::ranges::count(kChanges, s->flag, &Change::flag) > 0)
        << s->flag;
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
    for (const Setting* setting : all_settings()) {
      bool is_changed = false;
      for (const Change& change : kChanges) {
        if (change.flag != setting->flag) continue;
        TrainConfig other = c;
        other.model.set(*setting, change.value);
        const std::string text = step_of(other);
        is_changed |= !text.empty() && text != plain;
      }
      EXPECT_EQ(has_setting(*model, *setting) && !setting->flag.empty(), is_changed)
          << model->name << " " << setting->flag;
    }
  }
}

}  // namespace
}  // namespace tegula
