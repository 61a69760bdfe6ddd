// RoPE in config.json: how angles are scaled, of which layers, and how much of a head is turned.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "tegula/models/checkpoint.h"
#include "tegula/models/decoder.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

Result<ModelConfig> parse(std::string_view type, std::string_view members) {
  return parse_model_config(cat("{\"model_type\": \"", type, "\", ", members, "}"),
                            "d/config.json");
}

constexpr const char* kSmallLlama =
    R"("hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
       "num_hidden_layers": 2, "vocab_size": 99, "max_position_embeddings": 64)";
Result<ModelConfig> llama(std::string_view members) {
  return parse("llama", cat(kSmallLlama, ", ", members));
}

TEST(RopeConfig, ReadsScaledRopeInAllSpellings) {
  for (const char* object : {"rope_scaling", "rope_parameters"})
    for (const char* type : {"type", "rope_type"})
      for (const char* scaling :
           {R"(linear", "factor": 4)", R"(dynamic", "factor": 2.5)",
            R"(llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16)",
            R"(yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 20,
               "mscale": 0.7, "mscale_all_dim": 1, "truncate": false)",
            R"(longrope", "short_factor": [1, 1.5, 2, 3], "long_factor": [1, 4, 8, 16],
               "factor": 4, "original_max_position_embeddings": 16)"}) {
        const auto c = llama(cat("\"", object, "\": {\"", type, "\": \"", scaling, "}"));
        ASSERT_TRUE(c.ok()) << c.error().message;
        EXPECT_EQ(c->text(setting::kRopeScaling).substr(0, 20),
                  cat("{\"rope_type\": \"", scaling).substr(0, 20));
        const auto back = parse_model_config(model_config_json(*c, DType::kF32), "c");
        ASSERT_TRUE(back.ok()) << back.error().message;
        EXPECT_EQ(*back, *c);
      }
  const auto without = llama(R"("rope_scaling": {"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4})");
  ASSERT_TRUE(without.ok()) << without.error().message;
  const auto with = llama(R"("rope_scaling": {"rope_type": "llama3", "factor": 8,
      "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 64})");
  ASSERT_TRUE(with.ok()) << with.error().message;
  EXPECT_EQ(rotary_of(*without, 1).divisors, rotary_of(*with, 1).divisors);
  EXPECT_TRUE(llama(R"("rope_scaling": {"type": "linear", "factor": 4}, "rope_parameters":
      {"rope_type": "linear", "factor": 4.0})")
                  .ok());
}

// The angles' divisors by hand, and LongRoPE's choice by the longest text.
TEST(Rotary, DividesAngles) {
  const auto of = [](std::string_view scaling, int64_t longest) {
    return rotary_of(llama(cat("\"rope_scaling\": {", scaling, "}")).value(), longest);
  };
  EXPECT_EQ(of(R"("type": "linear", "factor": 4)", 9).divisors, (std::vector<double>{4, 4, 4, 4}));
  EXPECT_TRUE(of(R"("type": "dynamic", "factor": 4)", 9).divisors.empty());
  // Pairs turn .1591, .01591, … times a position, that is 2.55, .255, .0255 and .00255 in 16.
  const auto llama3 = of(R"("type": "llama3", "factor": 8, "low_freq_factor": 1,
      "high_freq_factor": 4, "original_max_position_embeddings": 16)",
                         9);
  const double kept = (16 / (2 * std::acos(-1.0)) - 1) / 3;
  EXPECT_NEAR(llama3.divisors[0], 1 / ((1 - kept) / 8 + kept), 1e-12);
  for (const size_t i : {1, 2, 3}) EXPECT_EQ(llama3.divisors[i], 8);
  const std::string lists = R"("type": "longrope", "short_factor": [1, 1.5, 2, 3],
      "long_factor": [1, 4, 8, 16], "original_max_position_embeddings": 16)";
  EXPECT_EQ(of(lists, 16).divisors, (std::vector<double>{1, 1.5, 2, 3}));
  EXPECT_EQ(of(lists, 17).divisors, (std::vector<double>{1, 4, 8, 16}));
  EXPECT_EQ(of(lists, 1).scale, std::sqrt(1 + std::log(4) / std::log(16)));
  EXPECT_EQ(of(lists + R"(, "attention_factor": 1.25)", 1).scale, 1.25);
  const auto c = llama(cat("\"rope_scaling\": {", lists, "}")).value();
  EXPECT_NE(note_on_rotary(c, 16).find("short_factor"), std::string::npos);
  EXPECT_NE(note_on_rotary(c, 17).find("reach 17 tokens, and 16 were"), std::string::npos);
  EXPECT_EQ(note_on_rotary(llama("\"head_dim\": 8").value(), 17), "");
  EXPECT_EQ(short_context(c), 16);
  EXPECT_EQ(short_context(llama("\"head_dim\": 8").value()), 0);
}

TEST(Rotary, TurnsAPartOfAHead) {
  const auto dims = [](double share, int64_t head_dim) {
    ModelConfig m;
    m.type = "phi3", m.rope_theta = 1e4, m.head_dim = head_dim, m.set(setting::kRotaryShare, share);
    return rotary_of(m, 1).dims;
  };
  EXPECT_EQ(dims(0.25, 64), 16);
  EXPECT_EQ(dims(0.75, 8), 6);
  EXPECT_EQ(dims(0.4, 8), 4);  // 3 elements are two pairs
  EXPECT_EQ(dims(1, 8), 8);
}

TEST(RopeConfig, RefusesWhatItCannotScale) {
  for (const auto& [members, code, words] :
       {std::tuple{R"("rope_scaling": {"type": "proportional", "factor": 4})", Code::kUnsupported,
                   "rope_scaling.type\": \"proportional\""},
        {R"("rope_parameters": {"factor": 4})", Code::kUnsupported, "rope_parameters.factor"},
        {R"("rope_parameters": {"rope_type": "linear"})", Code::kInvalidArgument,
         "rope_parameters.factor\" is missing"},
        {R"("rope_parameters": {"rope_type": "linear", "factor": 4, "low_freq_factor": 1})",
         Code::kUnsupported, "low_freq_factor"},
        {R"("rope_parameters": {"rope_type": "linear", "factor": 4, "mscale": 1})",
         Code::kUnsupported, "rope_parameters.mscale"},
        {R"("rope_parameters": {"rope_type": "linear", "factor": 4, "my_member": 1})",
         Code::kUnsupported, "rope_parameters.my_member"},
        {R"("rope_parameters": {"rope_type": "yarn", "factor": -4})", Code::kInvalidArgument,
         "rope_parameters.factor\" is -4"},
        {R"("rope_parameters": {"rope_type": "yarn", "factor": 4, "truncate": 1})",
         Code::kInvalidArgument, "rope_parameters.truncate\" is 1"},
        {R"("rope_parameters": {"rope_type": "longrope", "short_factor": [1, 2]})",
         Code::kInvalidArgument, "rope_parameters.long_factor\" is missing"},
        {R"("rope_parameters": {"rope_type": "longrope", "short_factor": [1, 0, 1, 1],
            "long_factor": [1, 2, 3, 4]})",
         Code::kInvalidArgument, "list of positive numbers"},
        {R"("rope_parameters": {"rope_type": "longrope", "short_factor": [1, 2],
            "long_factor": [1, 2]})",
         Code::kInvalidArgument,
         "lists of 2 factors, and of head_dim 8 partial_rotary_factor turns 4 pairs"},
        {R"("original_max_position_embeddings": 16)", Code::kUnsupported,
         "original_max_position_embeddings"},
        {R"("rope_scaling": {"rope_type": "linear", "type": "llama3", "factor": 4})",
         Code::kInvalidArgument, "remove the one"},
        {R"("rope_scaling": {"type": "linear", "factor": 4}, "rope_parameters":
            {"rope_type": "default"})",
         Code::kInvalidArgument, "remove the one"},
        {R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
            "high_freq_factor": 4})",
         Code::kInvalidArgument, "below high_freq_factor 4"},
        {R"("rope_parameters": {"full_attention": {"rope_theta": 1e4}})", Code::kUnsupported,
         "rope_parameters.full_attention"},
        {R"("rope_parameters": "linear")", Code::kInvalidArgument, "not an object"}})
    expect_error(llama(members), code, {"d/config.json", words});
}

// Gemma 3 turns layers with a window by a base of their own, and scales the others alone.
TEST(RopeConfig, ReadsRopeByTypeOfLayer) {
  const std::string base =
      R"("hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4, "head_dim": 8,
         "num_hidden_layers": 2, "vocab_size": 99)";
  const std::string nested = R"(, "rope_parameters": {"full_attention": {"rope_type": "linear",
      "factor": 8, "rope_theta": 5e5}, "sliding_attention": {"rope_theta": 2e4}})";
  const auto c = parse("gemma3_text", base + nested);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->rope_theta, 5e5);
  EXPECT_EQ(c->number(setting::kLocalTheta), 2e4);
  EXPECT_EQ(rotary_of(*c, 1).divisors[0], 8);
  const auto old = parse("gemma3_text", base + R"(, "rope_theta": 5e5, "rope_local_base_freq": 2e4,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0})");
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_EQ(*old, *c);
  for (const char* wrong :
       {R"("sliding_attention": {"rope_type": "linear", "factor": 8})", R"("rope_theta": 5e5)"})
    expect_error(parse("gemma3_text", cat(base, ", \"rope_parameters\": {", wrong, "}")),
                 Code::kUnsupported, {"d/config.json", "rope_parameters."});
}

TEST(RopeConfig, LayersMayTurnNothing) {
  const std::string base =
      R"("hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4,
         "num_hidden_layers": 4, "vocab_size": 99)";
  const auto turns = [&](const char* more) {
    std::string said;
    const auto c = parse("smollm3", base + more);
    EXPECT_TRUE(c.ok()) << c.error().message;
    const Decoder d = (*find_model("smollm3"))->decoder(*c);
    for (int64_t i = 0; i < 4; ++i) said += d.rotary(*c, i, 1).theta > 0 ? "r" : ".";
    return said;
  };
  EXPECT_EQ(turns(""), "rrr.");
  EXPECT_EQ(turns(R"(, "no_rope_layer_interval": 2)"), "r.r.");
  EXPECT_EQ(turns(R"(, "no_rope_layers": [0, 1, 1, 0, 1])"), ".rr.");
  expect_error(parse("smollm3", base + R"(, "no_rope_layers": [0, 1, 1])"), Code::kInvalidArgument,
               {"no_rope_layers has 3 layers", "n_layers is 4"});
  for (const char* wrong : {"[0, 2, 1, 1]", "[true, 1, 1, 1]", "3"})
    expect_error(parse("smollm3", cat(base, ", \"no_rope_layers\": ", wrong)),
                 Code::kInvalidArgument, {"no_rope_layers", "not a list of sizes from 0 to 1"});
}

}  // namespace
}  // namespace tegula
