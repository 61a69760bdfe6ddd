#include "tegula/io/hf_config.h"

#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

HfConfig sample(const std::string& model_type) {
  HfConfig c;
  c.model_type = model_type;
  c.vocab_size = 65, c.n_layers = 4, c.d_model = 128, c.d_ff = 500, c.max_seqlen = 64;
  c.norm_eps = 1e-6, c.activation = "gelu", c.tie_embeddings = true, c.dropout = 0.25;
  c.dtype = DType::kBF16;
  c.extra = {{"tegula_note", "kept"}, {"initializer_range", 0.02}, {"list", Json::Array{1, 2}}};
  const bool has_heads = !model_type.starts_with("tegula");
  if (has_heads) c.n_heads = 8, c.n_kv_heads = 8, c.head_dim = 16;
  if (has_heads && model_type != "gpt2") c.n_kv_heads = 2, c.head_dim = 24, c.rope_theta = 5e5;
  if (model_type == "mixtral") c.n_experts = 6, c.n_experts_per_token = 3, c.balance_loss = 0.02;
  if (model_type != "mixtral") c.bias = true;
  if (model_type == "tegula-lstm") c.d_ff = 4 * c.d_model;  // which it has no key for
  return c;
}

TEST(HfConfig, RoundTripsEveryModelType) {
  for (const char* type : {"gpt2", "llama", "mixtral", "tegula-mlp", "tegula-lstm"}) {
    TempDir dir;
    HfConfig c = sample(type);
    for (bool bias : {true, false}) {
      c.bias = bias && c.model_type != "mixtral";
      ASSERT_TRUE(check_hf_config(c).ok()) << check_hf_config(c).error().message;
      ASSERT_TRUE(write_file(dir / "config.json", format_hf_config(c)).ok());
      const auto back = read_hf_config(dir.path());
      ASSERT_TRUE(back.ok()) << back.error().message;
      EXPECT_EQ(*back, c) << format_hf_config(c) << format_hf_config(*back);
    }
  }
}

// The keys as GPT-2's published config has them.
TEST(HfConfig, ReadsAPublishedGpt2) {
  const auto c = parse_hf_config(R"({"activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "vocab_size": 50257})",
                                 "c");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->d_ff, 3072);
  EXPECT_EQ(c->n_kv_heads, 12);
  EXPECT_EQ(c->head_dim, 64);
  EXPECT_EQ(c->max_seqlen, 1024);
  EXPECT_TRUE(c->tie_embeddings && c->bias);
  EXPECT_EQ(c->dropout, 0.1);
  EXPECT_EQ(c->extra.size(), 4u);  // the two token ids, initializer_range, n_ctx
}

TEST(HfConfig, ReadsLlamaWithDefaultsAndBothFormsOfRope) {
  const std::string base =
      R"("model_type": "llama", "hidden_size": 576, "intermediate_size": 1536,
         "num_attention_heads": 9, "num_hidden_layers": 30, "vocab_size": 49152)";
  const auto c = parse_hf_config("{" + base + R"(, "num_key_value_heads": 3, "rope_theta": 100000,
    "torch_dtype": "bfloat16", "rope_scaling": null})",
                                 "c");
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->head_dim, 64);
  EXPECT_EQ(c->n_kv_heads, 3);
  EXPECT_EQ(c->rope_theta, 1e5);
  EXPECT_EQ(c->norm_eps, 1e-6);
  EXPECT_EQ(c->activation, "silu");
  EXPECT_EQ(c->dtype, DType::kBF16);
  EXPECT_FALSE(c->tie_embeddings || c->bias);
  const auto newer = parse_hf_config(
      "{" + base + R"(, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})", "c");
  ASSERT_TRUE(newer.ok()) << newer.error().message;
  EXPECT_EQ(newer->rope_theta, 5e5);
  EXPECT_EQ(newer->n_kv_heads, 9);
  for (const char* rope : {R"("rope_scaling": {"rope_type": "llama3", "factor": 8})",
                           R"("rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4})"})
    expect_error(parse_hf_config("{" + base + ", " + rope + "}", "dir/config.json"),
                 Code::kUnsupported, {"dir/config.json", "rope"});
}

TEST(HfConfig, BadConfigsAreErrorsThatNameFileAndKey) {
  const auto parse = [](std::string_view members) {
    return parse_hf_config(cat("{\"model_type\": \"gpt2\", ", members, "}"), "d/config.json");
  };
  expect_error(parse("\"n_embd\": \"big\""), Code::kInvalidArgument,
               {"d/config.json", "n_embd", "not a size"});
  expect_error(parse("\"n_embd\": 130, \"n_head\": 4"), Code::kInvalidArgument,
               {"d/config.json", "d_model is 130", "n_heads 4"});
  for (const char* size : {"1000000000000", "4611686018427387904", "-1", "1e3"})
    expect_error(parse(cat("\"n_head\": ", size)), Code::kInvalidArgument,
                 {"d/config.json", "n_head", "not a size from 0 to 1073741824"});
  for (const char* eps : {"0", "-1e-5"})
    expect_error(parse(cat("\"layer_norm_epsilon\": ", eps)), Code::kInvalidArgument,
                 {"d/config.json", "layer_norm_epsilon"});
  expect_error(parse("\"attn_pdrop\": 1.0"), Code::kInvalidArgument, {"pdrop is 1", "below 1"});
  expect_error(parse("\"n_layer\": 0"), Code::kInvalidArgument, {"n_layer is 0"});
  expect_error(parse("\"n_head\": 0"), Code::kInvalidArgument, {"n_head is 0"});
  expect_error(parse("\"tie_word_embeddings\": 1"), Code::kInvalidArgument, {"true or false"});
  expect_error(parse("\"layer_norm_epsilon\": []"), Code::kInvalidArgument, {"not a number"});
  expect_error(parse("\"scale_attn_weights\": false"), Code::kUnsupported, {"scale_attn_weights"});
  expect_error(parse("\"torch_dtype\": \"float8\""), Code::kUnsupported, {"float8"});
  expect_error(parse_hf_config(R"({"model_type": "bloom"})", "d/config.json"), Code::kUnsupported,
               {"'bloom'", "gpt2, llama, mixtral"});
  expect_error(parse_hf_config("{}", "c"), Code::kUnsupported, {"model type ''"});
  expect_error(parse_hf_config("[]", "c"), Code::kInvalidArgument, {"not a JSON object"});
  expect_error(parse_hf_config("{", "c"), Code::kInvalidArgument, {"'c'", "JSON"});
  expect_error(parse_hf_config(R"({"model_type": "llama"})", "c"), Code::kInvalidArgument,
               {"vocab_size", "missing"});
  HfConfig c = sample("llama");
  c.n_kv_heads = 3;
  expect_error(check_hf_config(c), Code::kInvalidArgument, {"n_heads 8", "n_kv_heads 3"});
  c = sample("llama");
  c.head_dim = 15;
  expect_error(check_hf_config(c), Code::kInvalidArgument, {"even head_dim", "15"});
}

}  // namespace
}  // namespace tegula
