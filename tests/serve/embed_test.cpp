// Vectors of texts: the same bits alone and in any batch; pooling by hand; what directories say.
#include "tegula/serve/embed.h"

#include <cmath>

#include "tegula/io/json.h"
#include "tegula/ir/host_tensor.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/init.h"
#include "tests/io/temp_dir.h"
#include "tests/serve/small_model.h"

namespace tegula {
namespace {

// A BERT of random weights, whose tokenizer has bytes.
std::string bert() {
  const std::string dir = ::testing::TempDir() + "embed_bert";
  if (path_exists(dir + "/model.safetensors")) return dir;
  EXPECT_TRUE(make_directories(dir).ok());
  ModelConfig m;
  m.type = "bert", m.vocab_size = 256, m.n_layers = 2, m.n_heads = 4, m.d_model = 64;
  m.max_seqlen = 100;
  EXPECT_TRUE(m.resolve().ok());
  std::vector<std::pair<std::string, TensorRef>> weights;
  std::vector<HostTensor> held;
  const auto specs = model_weights(m).value();
  held.reserve(specs.size());
  for (WeightSpec w : specs) {
    w.stddev *= 8;
    init_weight(w, 3, held.emplace_back(w.type).ref());
    weights.emplace_back(w.name, held.back().ref());
  }
  std::vector<std::vector<float>> zeros;
  std::vector<NamedTensor> tensors;
  for (const auto& [name, t] : checkpoint_tensors(m, weights, zeros)) tensors.push_back({name, t});
  EXPECT_TRUE(write_safetensors(dir + "/model.safetensors", tensors).ok());
  EXPECT_TRUE(write_file(dir + "/config.json", model_config_json(m, DType::kF32)).ok());
  EXPECT_TRUE(Tokenizer::train("bytes", "")->save(dir).ok());
  return dir;
}

std::vector<std::string> texts() {
  std::vector<std::string> all;
  for (int i = 0; i < 9; ++i) {
    all.emplace_back();
    for (int j = 0; j < 1 + i * i % 50 * 2 % 97; ++j)
      all.back() += static_cast<char>('a' + (i * j + j) % 23);
  }
  return all;
}

std::vector<std::vector<float>> embed(const std::string& model,
                                      const std::vector<std::string>& texts,
                                      const EmbedOptions& options, PoolBy by = PoolBy::kMean) {
  auto e = Embedder::open(model);
  EXPECT_TRUE(e.ok()) << e.error().message;
  (*e)->pooling.by = by;
  const Status st = (*e)->prepare(options);
  EXPECT_TRUE(st.ok()) << st.error().message;
  auto all = (*e)->embed(texts);
  EXPECT_TRUE(all.ok()) << all.error().message;
  std::vector<std::vector<float>> vectors;
  for (auto& each : *all) vectors.push_back(std::move(each.vector));
  return vectors;
}

TEST(Embed, ATextHasTheBitsThatItHasAlone) {
  const auto all = texts();
  for (const std::string& model : {bert(), model_of("llama"), model_of("gpt2")})
    for (const PoolBy by : {PoolBy::kMean, PoolBy::kLast}) {
      std::vector<std::vector<float>> alone;
      for (const std::string& t : all)
        alone.push_back(embed(model, {t}, {.threads = 1, .batch = 1}, by)[0]);
      for (const int64_t batch : {2, 9, 50})
        for (const int threads : {1, 3})
          EXPECT_EQ(embed(model, all, {threads, batch}, by), alone) << model << " " << batch;
      for (size_t i = 1; i < all.size(); ++i) EXPECT_NE(alone[i], alone[i - 1]);
    }
}

// An encoder's tokens see those behind them, a decoder's do not.
TEST(Embed, AnEncoderSeesBothWays) {
  const auto first = [](const std::string& model, const char* text) {
    return embed(model, {text}, {.threads = 1}, PoolBy::kCls)[0];
  };
  EXPECT_NE(first(bert(), "abc"), first(bert(), "abd"));
  EXPECT_EQ(first(model_of("llama"), "abc"), first(model_of("llama"), "abd"));
}

TEST(Pooling, ByHand) {
  const std::vector<float> rows = {3, -1, 1, 5, 2, 2};  // three tokens, two wide
  const auto by = [&](PoolBy how, bool is_normalised = false) {
    return Pooling{how, is_normalised}.apply(rows, 2);
  };
  EXPECT_EQ(by(PoolBy::kMean), (std::vector<float>{2, 2}));
  EXPECT_EQ(by(PoolBy::kCls), (std::vector<float>{3, -1}));
  EXPECT_EQ(by(PoolBy::kLast), (std::vector<float>{2, 2}));
  EXPECT_EQ(by(PoolBy::kMax), (std::vector<float>{3, 5}));
  EXPECT_EQ(by(PoolBy::kMean, true), std::vector<float>(2, static_cast<float>(2 / std::sqrt(8.0))));
  EXPECT_EQ((Pooling{PoolBy::kMean, true}.apply(std::vector<float>{0, 0}, 2)),
            (std::vector<float>{0, 0}));
}

TEST(Pooling, IsReadFromTheDirectory) {
  TempDir dir;
  const auto read = [&] { return read_pooling(**ModelFiles::open(dir.path()), 64); };
  const auto put = [&](const char* name, std::string_view text) {
    EXPECT_TRUE(make_directories(dir / "1_Pooling").ok());
    EXPECT_TRUE(replace_file(dir / name, text).ok());
  };
  put("config.json", "{}");
  EXPECT_EQ(read()->by, PoolBy::kMean);
  EXPECT_FALSE(read()->is_normalised);
  const char* const kModules = R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
    {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    {"type": "sentence_transformers.models.Normalize", "path": "2_Normalize"}])";
  put("modules.json", kModules);
  expect_error(read(), Code::kInvalidArgument, {"1_Pooling/config.json", "says nothing"});
  put("1_Pooling/config.json", R"({"word_embedding_dimension": 64, "pooling_mode_cls_token": true,
      "pooling_mode_mean_tokens": false})");
  put("sentence_bert_config.json", R"({"max_seq_length": 31, "do_lower_case": false})");
  put("config_sentence_transformers.json",
      R"({"prompts": {"query": "query: "}, "default_prompt_name": "query"})");
  EXPECT_EQ(read()->by, PoolBy::kCls);
  EXPECT_TRUE(read()->is_normalised);
  EXPECT_EQ(read()->most_tokens, 31);
  EXPECT_EQ(read()->prompt, "query: ");
  put("1_Pooling/config.json", R"({"pooling_mode": "lasttoken"})");
  EXPECT_EQ(read()->by, PoolBy::kLast);
  const auto refuse = [&](const char* text, Code code, std::string_view why) {
    put("1_Pooling/config.json", text);
    expect_error(read(), code, {"1_Pooling/config.json", why});
  };
  refuse(R"({"word_embedding_dimension": 65, "pooling_mode": "cls"})", Code::kInvalidArgument,
         "have 64");
  refuse(R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": true})",
         Code::kUnsupported, "2 ways");
  refuse(R"({"pooling_mode_mean_sqrt_len_tokens": true})", Code::kUnsupported, "mean_sqrt_len");
  refuse(R"({"pooling_mode": "cls", "what": 1})", Code::kUnsupported, "what");
  refuse(R"({"pooling_mode": "cls", "include_prompt": false})", Code::kUnsupported,
         "include_prompt");
  refuse("{}", Code::kUnsupported, "0 ways");
  put("modules.json", R"([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])");
  expect_error(read(), Code::kUnsupported, {"modules.json", "Dense"});
}

TEST(Embed, ALongTextLosesItsEnd) {
  const auto e = Embedder::open(bert()).value();
  e->pooling.most_tokens = 20;
  ASSERT_TRUE(e->prepare({.threads = 1}).ok());
  const std::string text(50, 'x');
  const std::string both[] = {text, text.substr(0, 20)};
  const auto all = e->embed(both).value();
  EXPECT_EQ(all[0].left_out, 30);
  EXPECT_EQ(all[1].left_out, 0);
  EXPECT_EQ(all[0].vector, all[1].vector);
  const std::string empty[] = {"a", ""};
  expect_error(e->embed(empty), Code::kInvalidArgument, {"text 2 of 2 is empty"});
}

}  // namespace
}  // namespace tegula
