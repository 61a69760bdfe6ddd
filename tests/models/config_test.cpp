// config.json of every family: what is read, refused and written.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/config_keys.h"
#include "tegula/models/decoder.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

Result<ModelConfig> parse(std::string_view type, std::string_view members) {
  return parse_model_config(cat("{\"model_type\": \"", type, "\", ", members, "}"),
                            "d/config.json");
}

// A value that is not the default of any family.
SettingValue other_value(const Setting& s, const ModelConfig& m) {
  switch (s.type) {
    case SettingType::kSize:
      return s.name == "n_heads"               ? int64_t{8}
             : s.name == "n_kv_heads"          ? int64_t{2}
             : s.name == "n_experts_per_token" ? int64_t{3}
             : s.name == "d_model"             ? int64_t{128}
                                               : int64_t{6};
    case SettingType::kNumber:
      return 0.25;
    case SettingType::kFlag:
      return true;
    case SettingType::kText:
      return std::string(s.choices.substr(s.choices.rfind('|') + 1));
    case SettingType::kTexts:
      return std::vector<std::string>(static_cast<size_t>(m.n_layers),
                                      std::string(s.choices.substr(s.choices.rfind('|') + 1)));
    case SettingType::kSizes:
      return std::vector<int64_t>(static_cast<size_t>(m.n_layers), 0);
  }
  return {};
}

TEST(ModelConfigJson, RoundTripsEverySettingOfEveryFamily) {
  for (const ModelDef* model : all_models()) {
    SCOPED_TRACE(model->name);
    ModelConfig plain;
    plain.type = model->name, plain.vocab_size = 65;
    ASSERT_TRUE(plain.resolve().ok());
    for (const Field& f : model->fields) {
      SCOPED_TRACE(f.setting->name);
      TempDir dir;
      ModelConfig c;
      c.type = model->name, c.vocab_size = 65;
      if (has_setting(*model, setting::kHeads)) c.n_heads = 8;
      c.set(*f.setting, other_value(*f.setting, c));
      const Status st = c.resolve();
      ASSERT_TRUE(st.ok()) << st.error().message;
      const std::string text = model_config_json(c, DType::kBF16);
      ASSERT_TRUE(write_file(dir / "config.json", text).ok());
      const auto back = load_model_config(**ModelFiles::open(dir.path()));
      ASSERT_TRUE(back.ok()) << back.error().message;
      if (!f.keys.empty()) {
        EXPECT_EQ(*back, c) << text << model_config_json(*back, DType::kBF16);
      }
    }
  }
}

// A model trained from another one says what was there, but for what changed.
TEST(ModelConfigJson, ADerivedOneKeepsWhatWasThere) {
  const TextFile base{"d/config.json",
                      R"({"model_type": "llama", "vocab_size": 65, "mine": {"a": [1, 2.5, null]},
    "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4,
    "max_position_embeddings": 64, "rope_theta": 5e5, "eos_token_id": [7, 8], "torch_dtype": "bfloat16"})"};
  ModelConfig c = parse_model_config(base.text, base.path).value();
  const auto derived = [&](DType dtype) { return derived_config_json(c, dtype, base).value(); };
  EXPECT_EQ(derived(DType::kBF16), base.text);
  // Each member is as it was, and none is new.
  const auto expect_changed = [&](const std::string& text, std::string_view key, const Json& to) {
    const Json was = Json::parse(base.text, "").value(), now = Json::parse(text, "").value();
    for (const auto& [name, value] : *was.as<Json::Object>()) {
      ASSERT_NE(now.find(name), nullptr) << name;
      EXPECT_EQ(*now.find(name), name == key ? to : value) << name;
    }
    EXPECT_EQ(now.as<Json::Object>()->size(), was.as<Json::Object>()->size());
  };
  expect_changed(derived(DType::kF32), "torch_dtype", "float32");
  c.max_seqlen = 128;
  expect_changed(derived(DType::kBF16), "max_position_embeddings", 128);
  c.max_seqlen = 64, c.dropout = 0.25;
  EXPECT_EQ(*Json::parse(derived(DType::kBF16), "")->find("attention_dropout"), Json(0.25));
  expect_error(derived_config_json(c, DType::kF32, {"d/config.json", "{"}), Code::kInvalidArgument,
               {"d/config.json"});
}

// No two settings share a name, a flag or a place; and a family has a name for each only once.
TEST(Settings, AreDeclaredOnce) {
  const auto all = all_settings();
  for (const Setting* a : all)
    for (const Setting* b : all) {
      if (a == b) continue;
      EXPECT_NE(a->name, b->name);
      EXPECT_TRUE(a->flag.empty() || a->flag != b->flag) << a->name << " " << b->name;
      EXPECT_TRUE(a->at.index() == 0 || !(a->at == b->at)) << a->name << " " << b->name;
    }
  for (const ModelDef* model : all_models())
    for (const Field& f : model->fields) {
      int n = 0;
      for (const Field& other : model->fields) n += other.setting->name == f.setting->name;
      EXPECT_EQ(n, 1) << model->name << " " << f.setting->name;
      // Where families declare a setting of their own under one name, they mean one thing.
      for (const Setting* s : all)
        if (s->name == f.setting->name) {
          EXPECT_EQ(s->flag, f.setting->flag) << model->name << " " << s->name;
          EXPECT_EQ(s->type, f.setting->type) << model->name << " " << s->name;
        }
    }
}

// The keys as GPT-2's published config has them.
TEST(ModelConfigJson, ReadsAPublishedGpt2) {
  const auto c = parse("gpt2", R"("activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257)");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->d_ff, 3072);
  EXPECT_EQ(c->n_kv_heads, 12);
  EXPECT_EQ(c->head_dim, 64);
  EXPECT_EQ(c->max_seqlen, 1024);
  EXPECT_TRUE(c->is_tied() && c->has_bias);
  EXPECT_EQ(c->dropout, 0.1);
}

TEST(ModelConfigJson, ReadsLlamaWithDefaultsAndBothFormsOfRope) {
  const std::string base =
      R"("hidden_size": 576, "intermediate_size": 1536,
         "num_attention_heads": 9, "num_hidden_layers": 30, "vocab_size": 49152)";
  const auto c = parse("llama", base + R"(, "num_key_value_heads": 3, "rope_theta": 100000,
    "torch_dtype": "bfloat16", "rope_scaling": null)");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->head_dim, 64);
  EXPECT_EQ(c->n_kv_heads, 3);
  EXPECT_EQ(c->rope_theta, 1e5);
  EXPECT_EQ(c->norm_eps, 1e-6);
  EXPECT_FALSE(c->is_tied() || c->has_bias);
  const auto newer = parse("llama", base + R"(, "dtype": "bfloat16", "head_dim": null,
                "rope_parameters": {"rope_type": "default", "rope_theta": 5e5})");
  ASSERT_TRUE(newer.ok()) << newer.error().message;
  EXPECT_EQ(newer->rope_theta, 5e5);
  EXPECT_EQ(newer->n_kv_heads, 9);
  EXPECT_EQ(newer->head_dim, 64);
  for (const char* rope : {R"("rope_scaling": {"rope_type": "proportional", "factor": 8})",
                           R"("rope_parameters": {"partial_rotary_factor": 0.5})"})
    expect_error(parse("llama", cat(base, ", ", rope)), Code::kUnsupported,
                 {"d/config.json", "rope"});
  expect_error(parse("llama", base + R"(, "hidden_act": "gelu")"), Code::kUnsupported,
               {"d/config.json", "\"hidden_act\"", "\"gelu\"", "has \"silu\""});
  const auto biased = parse("llama", base + R"(, "attention_bias": true)");
  ASSERT_TRUE(biased.ok()) << biased.error().message;
  EXPECT_TRUE(biased->has_bias && !biased->is_on(setting::kFfnBias));
  expect_error(parse("llama", base + R"(, "num_key_value_heads": 2)"), Code::kInvalidArgument,
               {"d/config.json", "n_heads 9", "n_kv_heads 2"});
  expect_error(parse("llama", base + R"(, "head_dim": 15)"), Code::kInvalidArgument,
               {"head_dim 15", "odd"});
}

constexpr const char* kSmallLlama =
    R"("hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
       "num_hidden_layers": 2, "vocab_size": 99, "max_position_embeddings": 64)";
Result<ModelConfig> llama(std::string_view members) {
  return parse("llama", cat(kSmallLlama, ", ", members));
}

TEST(ModelConfigJson, SpellingsMustAgree) {
  EXPECT_TRUE(llama(R"("rope_theta": 1e4, "rope_parameters": {"rope_theta": 10000})").ok());
  expect_error(
      llama(R"("rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5})"), Code::kInvalidArgument,
      {"rope_parameters.rope_theta", "5e+05", "\"rope_theta\" is 10000", "remove the one"});
  expect_error(parse("gpt2", R"("n_embd": 64, "hidden_size": 32)"), Code::kInvalidArgument,
               {"\"hidden_size\" is 32", "\"n_embd\" is 64"});
  const auto c = parse("gpt2", R"("hidden_size": 36, "num_hidden_layers": 2)");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->d_model, 36);
  EXPECT_EQ(c->n_layers, 2);
}

TEST(ModelConfigJson, KeysOfOtherModelsAreRefusedUnlessTheySayNo) {
  for (const char* no : {"\"sliding_window\": null", "\"qk_layernorm\": false",
                         "\"logit_scale\": 1.0", "\"n_routed_experts\": 0"})
    EXPECT_TRUE(llama(no).ok()) << no;
  for (const auto& [key, words] :
       {std::pair{"\"sliding_window\": 4", "(it is a key of gemma2 gemma3_text mistral mixtral"},
        {"\"logit_scale\": 0.5", "logit_scale"},
        {"\"quantization_config\": {\"bits\": 4}", "quantization_config"},
        {"\"is_causal\": false", "is_causal"},
        {"\"text_config\": {\"a\": 1}", "text_config"}})
    expect_error(llama(key), Code::kUnsupported, {"d/config.json", words});
  EXPECT_TRUE(llama("\"what_is_this\": 4").ok());
}

TEST(ModelConfigJson, EveryKeyIsInTheList) {
  for (const ModelDef* model : all_models()) {
    const auto keys = config_keys(*model);
    for (const Field& f : model->fields)
      if (!f.keys.empty()) {
        const auto first = f.keys.substr(0, f.keys.find(' '));
        const auto at = std::ranges::find(keys, first, &ConfigKey::key);
        ASSERT_NE(at, keys.end()) << model->name << " " << first;
        EXPECT_EQ(at->use, f.setting->is_of_training ? KeyUse::kTraining : KeyUse::kComputed);
      }
    std::set<std::string> once;
    for (const ConfigKey& k : keys) EXPECT_TRUE(once.insert(k.key).second) << k.key;
  }
}

// null is no cap and no window; an absent key is the family's.
TEST(ModelConfigJson, TellsNullFromAbsent) {
  const std::string base =
      R"("hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
         "num_hidden_layers": 2, "vocab_size": 99)";
  const auto value = [](const Result<ModelConfig>& c, std::string_view name) {
    EXPECT_TRUE(c.ok()) << c.error().message;
    for (const auto& [own, v] : c->own)
      if (own == name) return setting_json(v).number(-1);
    return -1.0;
  };
  const auto absent = parse("gemma2", base);
  EXPECT_EQ(value(absent, "final_logit_softcapping"), 30);
  EXPECT_EQ(value(absent, "attn_logit_softcapping"), 50);
  EXPECT_EQ(value(absent, "sliding_window"), 4096);
  EXPECT_EQ(absent->head_dim, 256);
  const auto null = parse("gemma2", base + R"(, "final_logit_softcapping": null, "head_dim": null,
      "attn_logit_softcapping": null, "sliding_window": null)");
  for (const char* name : {"final_logit_softcapping", "attn_logit_softcapping", "sliding_window"})
    EXPECT_EQ(value(null, name), 0) << name;
  EXPECT_EQ(null->head_dim, 8);
  EXPECT_EQ(value(parse("mistral", base + R"(, "num_key_value_heads": 2)"), "sliding_window"),
            4096);
  EXPECT_EQ(value(parse("mistral", base + R"(, "num_key_value_heads": null,
      "sliding_window": null)"),
                  "sliding_window"),
            0);
}

TEST(ModelConfigJson, LayersHaveTypes) {
  const std::string base =
      R"("hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
         "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": 99)";
  expect_error(parse("gemma2", base + R"(, "layer_types": ["full_attention"])"),
               Code::kInvalidArgument, {"layer_types names 1 layers", "n_layers is 2"});
  expect_error(parse("gemma2", base + R"(, "layer_types": ["full_attention", "mamba"])"),
               Code::kUnsupported, {"\"layer_types\"", "mamba", "sliding_attention"});
  expect_error(parse("gemma2", base + R"(, "layer_types": "full_attention")"),
               Code::kInvalidArgument, {"\"layer_types\"", "not a list"});
}

TEST(ModelConfigJson, BadConfigsAreErrorsThatNameFileAndKey) {
  const auto gpt2 = [](std::string_view members) { return parse("gpt2", members); };
  expect_error(gpt2("\"n_embd\": \"big\""), Code::kInvalidArgument,
               {"d/config.json", "n_embd", "not a size"});
  expect_error(gpt2("\"n_embd\": 130, \"n_head\": 4"), Code::kInvalidArgument,
               {"d/config.json", "d_model 130", "n_heads 4"});
  for (const char* size : {"1000000000000", "4611686018427387904", "-1", "1e3", "0"})
    expect_error(gpt2(cat("\"n_head\": ", size)), Code::kInvalidArgument,
                 {"d/config.json", "n_head", "not a size from 1 to 65536"});
  for (const char* eps : {"0", "-1e-5"})
    expect_error(gpt2(cat("\"layer_norm_epsilon\": ", eps)), Code::kInvalidArgument,
                 {"d/config.json", "layer_norm_epsilon is", "positive"});
  expect_error(gpt2("\"attn_pdrop\": 1.0"), Code::kInvalidArgument, {"pdrop is 1", "below 1"});
  expect_error(gpt2("\"n_layer\": 0"), Code::kInvalidArgument, {"\"n_layer\" is 0"});
  expect_error(gpt2("\"tie_word_embeddings\": 1"), Code::kInvalidArgument, {"true or false"});
  expect_error(gpt2("\"layer_norm_epsilon\": []"), Code::kInvalidArgument, {"not a number"});
  expect_error(gpt2("\"scale_attn_weights\": false"), Code::kUnsupported, {"scale_attn_weights"});
  expect_error(gpt2("\"torch_dtype\": \"float8\""), Code::kUnsupported, {"float8"});
  expect_error(gpt2("\"dtype\": 7"), Code::kInvalidArgument, {"\"dtype\"", "not a string"});
  expect_error(parse("bloom", "\"a\": 1"), Code::kUnsupported, {"'bloom'", "gpt2", "mixtral"});
  expect_error(parse_model_config("{}", "c"), Code::kUnsupported, {"no \"model_type\""});
  expect_error(parse_model_config("{\"model_type\": 1}", "c"), Code::kInvalidArgument,
               {"model_type", "not a string"});
  expect_error(parse_model_config("[]", "c"), Code::kInvalidArgument, {"not a JSON object"});
  expect_error(parse_model_config("{", "c"), Code::kInvalidArgument, {"'c'", "JSON"});
  expect_error(parse("llama", "\"a\": 1"), Code::kInvalidArgument, {"vocab_size", "missing"});
}

}  // namespace
}  // namespace tegula
