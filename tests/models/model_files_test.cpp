// A model's files, in the forms that they come in.
#include "tegula/models/model_files.h"

#include "tegula/io/checkpoint.h"
#include "tegula/io/json.h"
#include "tegula/io/weight_files.h"
#include "tegula/text/tokenizer.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

class Files : public ::testing::Test {
 protected:
  Files() { put("config.json", R"({"model_type": "gpt2"})"); }
  void put(const char* name, std::string_view text) const {
    ASSERT_TRUE(replace_file(dir / name, text).ok());
  }
  std::shared_ptr<const ModelFiles> open() const { return ModelFiles::open(dir.path()).value(); }
  std::vector<int64_t> ends() const { return open()->end_of_text().value(); }
  TempDir dir;
};

TEST_F(Files, SayNothingThatIsNotThere) {
  const auto files = open();
  EXPECT_EQ(files->path(), dir.path());
  EXPECT_EQ(files->config().value(), (TextFile{dir / "config.json", R"({"model_type": "gpt2"})"}));
  EXPECT_EQ(files->generation()->text, "{}");
  EXPECT_EQ(files->chat_template()->text, "");
  EXPECT_TRUE(files->companions()->empty());
  EXPECT_TRUE(files->end_of_text()->empty());
  expect_error(files->weights(), Code::kIo, {"model.safetensors"});
  expect_error(files->tokenizer(), Code::kIo, {"tokenizer.json"});
  EXPECT_TRUE(files->verify_weights().ok());
}

TEST_F(Files, TheEndOfATextIsGenerationsBeforeTheModels) {
  using Ids = std::vector<int64_t>;
  put("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(ends(), Ids{7});
  put("generation_config.json", R"({"eos_token_id": null, "top_k": 5})");
  EXPECT_EQ(ends(), Ids{7});
  put("generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_EQ(ends(), (Ids{3, 4}));
  put("generation_config.json", R"({"eos_token_id": "no"})");
  expect_error(open()->end_of_text(), Code::kInvalidArgument,
               {"generation_config.json", "eos_token_id is \"no\""});
  put("generation_config.json", "{");
  expect_error(open()->end_of_text(), Code::kInvalidArgument, {"generation_config.json", "JSON"});
}

// A model of images and text, as transformers 4 and 5 lay it out.
TEST_F(Files, OfImagesAndTextAreTheTexts) {
  put("config.json", R"({"model_type": "gemma3", "eos_token_id": [1, 106], "dtype": "bfloat16",
      "tie_word_embeddings": false, "vision_config": {"hidden_size": 9}, "mm_tokens_per_image": 4,
      "text_config": {"model_type": "gemma3_text", "hidden_size": 64, "vocab_size": 7}})");
  const auto files = open();
  const Json config = Json::parse(files->config()->text, "c").value();
  EXPECT_EQ(config, Json::parse(R"({"model_type": "gemma3_text", "hidden_size": 64,
      "vocab_size": 7, "tie_word_embeddings": false, "eos_token_id": [1, 106],
      "dtype": "bfloat16"})",
                                "c")
                        .value());
  EXPECT_EQ(files->end_of_text().value(), (std::vector<int64_t>{1, 106}));
  float x[] = {1, 2, 3, 4, 5};
  const auto at = [&](int i) { return contiguous_ref(x + i, {DType::kF32, {1}}); };
  const NamedTensor tensors[] = {{"language_model.model.norm.weight", at(0)},
                                 {"model.language_model.embed_tokens.weight", at(1)},
                                 {"lm_head.weight", at(2)},
                                 {"vision_tower.a", at(3)},
                                 {"model.multi_modal_projector.b", at(4)}};
  ASSERT_TRUE(write_safetensors(dir / "model.safetensors", tensors).ok());
  const auto weights = files->weights().value();
  EXPECT_EQ(*weights.find("model.norm.weight").tensor->as<float>(), 1);
  EXPECT_EQ(*weights.find("model.embed_tokens.weight").tensor->as<float>(), 2);
  EXPECT_EQ(*weights.find("lm_head.weight").tensor->as<float>(), 3);
  int n = 0;
  weights.for_each([&](std::string_view, const WeightFiles::Found&) { ++n; });
  EXPECT_EQ(n, 3);
  const std::string note = files->note();
  for (const char* word : {"text_config alone", "not vision_config", "2 tensors",
                           "multi_modal_projector", "vision_tower"})
    EXPECT_NE(note.find(word), note.npos) << note;
  // A family that is built has its own keys read, which then refuse it.
  put("config.json", R"({"model_type": "llama", "text_config": {"model_type": "gemma3_text"}})");
  EXPECT_EQ(open()->note(), "");
}

TEST_F(Files, AChatTemplateIsAFileOrStandsInTheTokenizers) {
  put("tokenizer_config.json", R"({"chat_template": "one"})");
  EXPECT_EQ(open()->chat_template()->text, "one");
  put("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "two"},
                                                     {"name": "default", "template": "three"}]})");
  EXPECT_EQ(open()->chat_template()->text, "three");
  for (const char* bad :
       {R"({"chat_template": [{"name": "rag", "template": "two"}]})", R"({"chat_template": 5})"}) {
    put("tokenizer_config.json", bad);
    expect_error(open()->chat_template(), Code::kInvalidArgument,
                 {"tokenizer_config.json", "chat_template", "default"});
  }
  put("chat_template.jinja", "four");
  EXPECT_EQ(open()->chat_template()->text, "four");
}

TEST_F(Files, CompanionsAreHowTextsAreMadeAndRead) {
  for (const char* name : {"merges.txt", "generation_config.json", "special_tokens_map.json",
                           "README.md", "model.safetensors", "manifest.txt"})
    put(name, name);
  std::vector<std::string> names;
  const auto found = open()->companions();
  for (const TextFile& file : *found) {
    names.push_back(file.path);
    EXPECT_EQ(file.text, file.path);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"generation_config.json", "special_tokens_map.json",
                                             "merges.txt"}));
}

TEST(ModelFiles, ARunStandsForItsLatestCheckpoint) {
  const TempDir dir;
  for (int64_t step : {1, 2}) {
    auto w = CheckpointWriter::begin(dir.path(), step);
    ASSERT_TRUE(w.ok()) << w.error().message;
    float value = static_cast<float>(step);
    const NamedTensor tensors[] = {{"w", contiguous_ref(&value, {DType::kF32, {1}})}};
    ASSERT_TRUE(w->add_tensors(kModelFile, tensors).ok());
    ASSERT_TRUE(w->add_file(kConfigFile, cat("{\"step\": ", step, "}")).ok());
    ASSERT_TRUE(w->publish().ok());
  }
  for (const Check check : {Check::kSizes, Check::kAllButTensors, Check::kHashes}) {
    const auto files = ModelFiles::open(dir.path(), check).value();
    EXPECT_EQ(files->path(), dir / "checkpoints/step-000002");
    EXPECT_EQ(files->config()->text, "{\"step\": 2}");
    const WeightFiles weights = files->weights().value();
    EXPECT_EQ(*weights.find("w").tensor->as<float>(), 2);
    EXPECT_EQ(weights.find("w").tensor->dtype, DType::kF32);
    EXPECT_TRUE(files->verify_weights().ok());
  }
  expect_error(ModelFiles::open(dir / "checkpoints"), Code::kInvalidArgument, {"is no model"});
  expect_error(ModelFiles::open(dir / "no"), Code::kIo, {"ENOENT"});
}

}  // namespace
}  // namespace tegula
