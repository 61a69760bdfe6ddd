// tokenizer.json as other models bring it.
#include "tegula/io/json.h"
#include "tegula/text/tokenizer.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

// As Llama 3's own file: its pattern, words that no merge makes, names found in text, a template.
class Llama3File : public ::testing::Test {
 protected:
  Llama3File() {
    const auto plain = Tokenizer::train("bpe:258", "abab abab").value();  // ab, " ab" or abab
    json = Json::parse(plain.files()[0].second, "t").value();
    Json model = *json.find("model");
    model.set("ignore_merges", true);
    Json vocab = *model.find("vocab");
    vocab.set("xyz", 258);
    model.set("vocab", std::move(vocab));
    json.set("model", std::move(model));
    const auto token = [](int id, const char* content, bool lstrip, bool rstrip, bool normalized) {
      Json t = Json::object({{"id", id}, {"content", content}, {"special", !normalized}});
      t.set("lstrip", lstrip), t.set("rstrip", rstrip), t.set("normalized", normalized);
      return t;
    };
    json.set("added_tokens", Json::Array{token(259, "<|begin|>", false, false, false),
                                         token(260, "<mask>", true, true, false),
                                         token(261, "<|be", false, false, false),
                                         token(262, "<-", false, false, true)});
    const Json split = Json::object({{"type", "Split"},
                                     {"pattern", Json::object({{"Regex", kPattern}})},
                                     {"behavior", "Isolated"},
                                     {"invert", false}});
    const Json bytes = Json::object({{"type", "ByteLevel"}, {"use_regex", false}});
    json.set("pre_tokenizer",
             Json::object({{"type", "Sequence"}, {"pretokenizers", Json::Array{split, bytes}}}));
    json.set("post_processor", *Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel", "trim_offsets": false},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}},
       {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens":
       {"<|begin|>": {"id": "<|begin|>", "ids": [259], "tokens": ["<|begin|>"]}}}]})",
                                            "t"));
  }
  Result<Tokenizer> load() const {
    EXPECT_TRUE(replace_file(dir / "tokenizer.json", json.dump(1)).ok());
    return Tokenizer::load(dir.path());
  }
  // The same with one piece of its text replaced.
  Result<Tokenizer> load_with(std::string_view from, std::string_view to) const {
    std::string text = json.dump();
    EXPECT_NE(text.find(from), text.npos) << from;
    text.replace(text.find(from), from.size(), to);
    EXPECT_TRUE(replace_file(dir / "tokenizer.json", text).ok());
    return Tokenizer::load(dir.path());
  }
  static constexpr const char* kPattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+)"
      R"([\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  TempDir dir;
  Json json;
};

TEST_F(Llama3File, GivesTheIdsOfTheLibrary) {
  const auto t = load();
  ASSERT_TRUE(t.ok()) << t.error().message;
  using Ids = std::vector<int32_t>;
  const auto ids = [&](std::string_view text) { return t->encode(text).value(); };
  EXPECT_EQ(ids(""), Ids{259});
  EXPECT_EQ(ids("xyz"), (Ids{259, 258}));
  EXPECT_EQ(ids("xyzz"), (Ids{259, 'x', 'y', 'z', 'z'}));  // the word is another
  EXPECT_EQ(ids("x \t<mask> \n y"), (Ids{259, 'x', 260, 'y'}));
  EXPECT_EQ(ids("x\xe3\x80\x80<mask>"), (Ids{259, 'x', 260}));
  EXPECT_EQ(ids(" \x80<mask>"), (Ids{259, ' ', 0x80, 260}));  // no white space ends here
  EXPECT_EQ(ids("<|begin|><|begi<-"), (Ids{259, 259, 261, 'g', 'i', 262}));
  EXPECT_EQ(t->decode(ids("<|begin|>y<mask>")), "<|begin|><|begin|>y<mask>");
  EXPECT_EQ(t->vocab_size(), 263);
  // It saves the file that it came from.
  TempDir other;
  ASSERT_TRUE(t->save(other.path()).ok());
  EXPECT_EQ(read_file(other / "tokenizer.json").value(), json.dump(1));
}

TEST_F(Llama3File, OtherPatternsAndSplitsAreComputed) {
  const auto ids = [&](std::string_view from, std::string_view to, std::string_view text) {
    const auto t = load_with(from, to);
    EXPECT_TRUE(t.ok()) << t.error().message;
    return t.ok() ? t->encode(text).value() : std::vector<int32_t>{};
  };
  using Ids = std::vector<int32_t>;
  const int32_t ab = 256;
  EXPECT_EQ(ids("{1,3}", "{1,4}", "xyz"), (Ids{259, 258}));
  EXPECT_EQ(ids("Isolated", "Removed", "xyz"), Ids{259});  // every word is a delimiter
  EXPECT_EQ(ids("\"use_regex\": false", "\"use_regex\": true", "ab-ab"), (Ids{259, ab, '-', ab}));
  // What batches are cut and filled to is not a text's.
  EXPECT_EQ(ids("\"truncation\": null", "\"truncation\": {\"max_length\": 2}", "ab-ab"),
            (Ids{259, ab, '-', ab}));
  EXPECT_EQ(ids("\"normalizer\": null", "\"normalizer\": {\"type\": \"Lowercase\"}", "AB <-<MASK>"),
            (Ids{259, ab, ' ', 262, '<', 'm', 'a', 's', 'k', '>'}));
}

TEST_F(Llama3File, OtherFormsAreRefused) {
  const auto refuse = [&](std::string_view from, std::string_view to, std::string_view why) {
    expect_error(load_with(from, to), Code::kUnsupported, {"tokenizer.json", why});
  };
  refuse("\\\\p{L}+", "\\\\p{L}+?", "lazy or double repetition at byte 53");
  refuse("\\\\p{L}+", "\\\\p{Han}+", "\\p{Han}");
  refuse("\\\\p{L}+", "\\\\w+", "\\w");
  refuse("\\\\p{L}+", "(?<=a)", "the group (?<=…");
  refuse("|\\\\s+\"", "|\\\\s*\"", "matches the empty text");
  refuse("Isolated", "Merged", "behavior Merged");
  refuse("\"invert\": false", "\"inverted\": false", "Split has the key inverted");
  refuse("\"ByteLevel\", \"use_regex\": false}", "\"ByteLevel\"},{\"type\": \"Digits\"}",
         "Digits behind ByteLevel");
  refuse("\"normalizer\": null", "\"normalizer\": {\"type\": \"Nmt\"}",
         "normalizer is of type Nmt");
  refuse("\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\",\"x\": 1}",
         "NFC has the key x");
  refuse("\"normalizer\": null",
         cat(R"("normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": ")",
             std::string(10'001, 'a'), "\"}"),
         "so much longer");
  refuse("\"version\"", "\"virsion\"", "file has the key virsion");
  refuse("\"dropout\": null", "\"dropout\": 0.1", "model.dropout");
  refuse("\"fuse_unk\"", "\"fused\"", "model has the key fused");
  refuse("\"byte_fallback\": false", "\"byte_fallback\": true", "byte_fallback");
  refuse("\"TemplateProcessing\"", "\"Reversal\"", "post_processor is of type Reversal");
  expect_error(load_with("[259]", "[]"), Code::kInvalidArgument, {"'<|begin|>'", "no ids"});
  expect_error(load_with("[259]", "[999]"), Code::kInvalidArgument, {"id 999 of 263"});
  expect_error(load_with("\"unk_token\": null", "\"unk_token\": \"<?>\""), Code::kInvalidArgument,
               {"'<?>' is not in model.vocab"});
}

}  // namespace
}  // namespace tegula
