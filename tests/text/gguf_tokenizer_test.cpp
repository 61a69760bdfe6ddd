// A tokenizer that goes into a GGUF file and back gives the same ids, or a note says why not.
#include "tegula/text/gguf_tokenizer.h"

#include <set>

#include "tegula/text/gguf_words.h"
#include "tegula/text/words.h"
#include "tests/text/kinds.h"

namespace tegula {
namespace {

class NoTensors : public TensorSource {
 public:
  Status write(std::string_view, OutputFile&) override { return {}; }
};

Result<GgufFile> written(const TempDir& dir, const std::vector<GgufOutKey>& keys) {
  NoTensors none;
  auto out = OutputFile::create(dir / "t.gguf").value();
  TEGULA_TRY(write_gguf(out, keys, {}, none));
  TEGULA_TRY(out.finish());
  return GgufFile::open(dir / "t.gguf");
}

bool has_no_white_space_rules(std::string_view text) {
  return text.find("<Tool>") == text.npos && text.find("<tool>") == text.npos &&
         text.find("K\xc3\xa9") == text.npos;
}

TEST(GgufTokenizer, ThereAndBackGivesTheSameIds) {
  const Json all = fixture();
  // Those of the fixture that have a name in GGUF; "prefix" and the like have none.
  const std::set<std::string> with_form = {"gpt2",   "gpt2-split",   "llama3",    "qwen2",
                                           "o200k",  "tekken",       "starcoder", "smollm",
                                           "llama2", "llama2-lines", "gemma"};
  const std::set<std::string> normalised = {"qwen2"};
  int n_same = 0;
  for (const auto& [name, kind] : *all.find("kinds")->as<Json::Object>()) {
    SCOPED_TRACE(name);
    TempDir dir;
    const Json file = file_of(all, kind);
    const auto before = Tokenizer::from_json(file, "before").value();
    std::vector<std::string> notes;
    const auto keys = gguf_keys_of(file, "before", before.vocab_size() + 3, notes);
    EXPECT_EQ(keys.ok(), with_form.contains(name))
        << (keys.ok() ? std::string() : keys.error().message);
    if (!keys.ok()) {
      EXPECT_EQ(keys.error().code, Code::kUnsupported);
      continue;
    }
    const auto gguf = written(dir, *keys);
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    const auto json = tokenizer_json_of(*gguf);
    ASSERT_TRUE(json.ok()) << json.error().message;
    const auto after = Tokenizer::from_json(*json, "after");
    ASSERT_TRUE(after.ok()) << after.error().message;
    EXPECT_EQ(after->vocab_size(), before.vocab_size());  // padding is none of its tokens
    const bool has_other_merges = [&] {
      for (const std::string& n : notes)
        if (n.find("no merge joins them") != n.npos) return true;
      return false;
    }();
    for (const Json& each : *kind.find("texts")->as<Json::Array>()) {
      const std::string& text = *(*each.as<Json::Array>())[0].as<std::string>();
      if (!has_no_white_space_rules(text) || normalised.contains(name)) continue;
      const auto ids = before.encode(text).value(), again = after->encode(text).value();
      if (!has_other_merges) {
        EXPECT_EQ(again, ids) << text;
      }
      EXPECT_EQ(after->decode(again), before.decode(ids)) << text;
      n_same += again == ids;
    }
  }
  EXPECT_GE(n_same, 80);
}

TEST(GgufTokenizer, ScoresAreTheMerges) {
  TempDir dir;
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  std::vector<float> scores = {0, 0, 0};
  for (const char* word : {"a", "b", "c", "ab", "bc", "abc", "\xe2\x96\x81",
                           "\xe2\x96\x81"
                           "a"}) {
    tokens.emplace_back(word);
    types.push_back(1);
    scores.push_back(0);
  }
  scores[6] = -5, scores[7] = -1, scores[8] = -9, scores[10] = -7;  // ab, bc, abc, ▁a
  std::vector<GgufOutKey> keys = {
      {"tokenizer.ggml.model", std::string("llama")}, {"tokenizer.ggml.tokens", tokens},
      {"tokenizer.ggml.token_type", types},           {"tokenizer.ggml.scores", scores},
      {"tokenizer.ggml.bos_token_id", uint32_t{1}},   {"tokenizer.ggml.eos_token_id", uint32_t{2}}};
  const auto open = [&] {
    return Tokenizer::from_json(tokenizer_json_of(written(dir, keys).value()).value(), "t");
  };
  // bc first, then ▁a; ▁abc is no token.
  EXPECT_EQ(open()->encode("abc").value(), (std::vector<int32_t>{1, 10, 7}));
  keys.push_back({"tokenizer.ggml.add_space_prefix", false});
  EXPECT_EQ(open()->encode("abc").value(), (std::vector<int32_t>{1, 8}));
  EXPECT_EQ(open()->encode("ab").value(), (std::vector<int32_t>{1, 6}));
  keys.push_back({"tokenizer.ggml.add_bos_token", false});
  keys.push_back({"tokenizer.ggml.add_eos_token", true});
  EXPECT_EQ(open()->encode("a</s>").value(), (std::vector<int32_t>{3, 2, 2}));
}

TEST(GgufTokenizer, WhatIsNotReadIsNamed) {
  TempDir dir;
  const std::vector<GgufOutKey> whole = {{"tokenizer.ggml.model", std::string("gpt2")},
                                         {"tokenizer.ggml.pre", std::string("gpt-2")},
                                         {"tokenizer.ggml.tokens", std::vector<std::string>{"a"}},
                                         {"tokenizer.ggml.token_type", std::vector<int32_t>{1}},
                                         {"tokenizer.ggml.merges", std::vector<std::string>{}}};
  const auto with = [&](const GgufOutKey& other) {
    auto keys = whole;
    for (GgufOutKey& k : keys)
      if (k.name == other.name) return k = other, keys;
    keys.push_back(other);
    return keys;
  };
  ASSERT_TRUE(tokenizer_json_of(written(dir, whole).value()).ok());
  struct Case {
    GgufOutKey key;
    std::string_view word;
    Code code = Code::kInvalidArgument;
  };
  const Case cases[] = {
      {{"tokenizer.ggml.model", std::string("t5")}, "'t5'", Code::kUnsupported},
      {{"tokenizer.ggml.model", std::string("none")}, "has no tokenizer"},
      {{"tokenizer.ggml.pre", std::string("superbpe")}, "'superbpe'", Code::kUnsupported},
      {{"tokenizer.ggml.pre", uint32_t{1}}, "pre: it is 1, not a string"},
      {{"tokenizer.ggml.remove_extra_whitespaces", true},
       "remove_extra_whitespaces",
       Code::kUnsupported},
      {{"tokenizer.ggml.tokens", std::vector<std::string>{"\xff"}}, "the token 0 is not UTF-8"},
      {{"tokenizer.ggml.tokens", std::vector<float>{1}}, "tokens: it is no list"},
      {{"tokenizer.ggml.token_type", std::vector<int32_t>{1, 1}}, "there are 1 tokens"},
      {{"tokenizer.ggml.token_type", std::vector<int32_t>{9}}, "no type of a token"},
      {{"tokenizer.ggml.merges", std::vector<std::string>{"ab"}}, "'ab' names no two tokens"},
      {{"tokenizer.ggml.add_bos_token", uint32_t{1}}, "not a bool"},
      {{"tokenizer.ggml.add_bos_token", true}, "bos_token_id: it is missing"}};
  for (const Case& c : cases)
    expect_error(tokenizer_json_of(written(dir, with(c.key)).value()), c.code, {"t.gguf", c.word});
  auto far = with({"tokenizer.ggml.add_bos_token", true});
  far.push_back({"tokenizer.ggml.bos_token_id", uint32_t{7}});
  expect_error(tokenizer_json_of(written(dir, far).value()), Code::kInvalidArgument,
               {"bos_token_id: it is 7"});
}

TEST(GgufTokenizer, WaysToCutWordsHaveNames) {
  for (const char* name :
       {"gpt-2", "llama-bpe", "qwen2", "smollm", "starcoder", "gpt-4o", "tekken", "default"}) {
    const GgufWords* words = find_gguf_words(name);
    ASSERT_NE(words, nullptr) << name;
    const Json json = pre_tokenizer_of(*words);
    EXPECT_TRUE(Words::read(&json).ok()) << name;
    EXPECT_EQ(words_like(json, words->is_whole_first), words) << name;
  }
  EXPECT_EQ(find_gguf_words("gpt"), nullptr);
  EXPECT_EQ(find_gguf_words("gpt-2 phi-2"), nullptr);
  EXPECT_EQ(find_gguf_words(""), nullptr);
}

}  // namespace
}  // namespace tegula
