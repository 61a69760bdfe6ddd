// A family's settings change what it computes: no flag is taken and then ignored.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tegula/ir/text.h"
#include "tegula/train/step.h"

namespace tegula {
namespace {

// Values, each of which must make a difference to a family that has the setting, or one of them.
std::vector<SettingValue> changes_of(const Setting& s) {
  const std::pair<std::string_view, int64_t> sizes[] = {
      {"d-model", 16}, {"d-ff", 40},  {"n-heads", 2},  {"n-kv-heads", 2},
      {"head-dim", 4}, {"seqlen", 6}, {"n-experts", 5}};
  switch (s.type) {
    case SettingType::kSize:
      for (const auto& [flag, size] : sizes)
        if (flag == s.flag) return {size};
      return {int64_t{3}};
    case SettingType::kNumber:
      return {0.5};
    case SettingType::kFlag:
      return {true, false};
    case SettingType::kText: {
      std::vector<SettingValue> all;
      for (std::string_view rest = s.choices; !rest.empty();) {
        const size_t n = std::min(rest.find('|'), rest.size());
        all.emplace_back(std::string(rest.substr(0, n)));
        rest.remove_prefix(std::min(n + 1, rest.size()));
      }
      return all;
    }
    case SettingType::kTexts:
    case SettingType::kSizes:
      return {};
  }
  return {};
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
    c.model.vocab_size = 9, c.model.n_layers = 4, c.model.n_heads = 4, c.model.d_model = 32;
    c.model.max_seqlen = 8;
    const std::string plain = step_of(c);
    ASSERT_FALSE(plain.empty());
    for (const Setting* setting : all_settings()) {
      if (setting->flag.empty()) continue;
      std::set<std::string> texts;
      for (const SettingValue& value : changes_of(*setting)) {
        TrainConfig other = c;
        other.model.set(*setting, value);
        texts.insert(step_of(other));
      }
      texts.erase("");
      const bool is_changed = texts.size() > 1 || (texts.size() == 1 && !texts.contains(plain));
      // Each of a text's choices is a computation of its own.
      if (setting->type == SettingType::kText && is_changed) {
        EXPECT_EQ(texts.size(), changes_of(*setting).size()) << setting->flag;
      }
      EXPECT_EQ(has_setting(*model, *setting), is_changed) << model->name << " " << setting->flag;
    }
  }
}

}  // namespace
}  // namespace tegula
