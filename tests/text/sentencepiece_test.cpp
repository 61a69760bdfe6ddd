// SentencePiece's own files give the ids that its library gives: those are in
// sentencepiece_models.json, which tests/oracle/sentencepiece_test.py writes.
#include "tegula/text/charsmap.h"
#include "tegula/text/detokenizer.h"
#include "tegula/text/grapheme.h"
#include "tegula/text/sentencepiece_file.h"
#include "tests/text/kinds.h"

namespace tegula {
namespace {

Json fixture_of_models() {
  const char* path = "tests/text/sentencepiece_models.json";
  return Json::parse(read_file(path).value(), path).value();
}

std::string bytes_of(const Json& all, std::string_view name) {
  return from_base64(text_of(&(*all.find(name)->as<Json::Array>())[0])).value();
}

Result<Tokenizer> load_files(const TempDir& dir, std::string_view model,
                             std::string_view config = "") {
  EXPECT_TRUE(replace_file(dir / "tokenizer.model", model).ok());
  if (!config.empty()) EXPECT_TRUE(replace_file(dir / "tokenizer_config.json", config).ok());
  return Tokenizer::load(dir.path());
}

TEST(SentencePiece, IdsAndTextsEqualTheLibrarys) {
  const Json all = fixture_of_models();
  int n_texts = 0;
  for (const auto& [name, kind] : *all.as<Json::Object>()) {
    TempDir dir;
    const auto t = load_files(dir, bytes_of(all, name));
    ASSERT_TRUE(t.ok()) << name << ": " << t.error().message;
    EXPECT_EQ(t->kind(), name.starts_with("bpe") ? "sentencepiece" : "unigram");
    for (const Json& each : list_of(&list_of(&kind)[1])) {
      const Json::Array& parts = list_of(&each);
      std::vector<int32_t> ids;
      for (const Json& id : list_of(&parts[1]))
        ids.push_back(static_cast<int32_t>(*id.as<int64_t>()));
      EXPECT_EQ(t->encode(text_of(&parts[0])).value(), ids) << name << ": " << parts[0].dump();
      ++n_texts;
      // An unknown piece is " ⁇ " there, and here the piece.
      if (std::find(ids.begin(), ids.end(), 0) == ids.end())
        EXPECT_EQ(shown_text(*t, ids), text_of(&parts[2])) << name << ": " << parts[0].dump();
    }
    // It saves the file that it came from.
    TempDir other;
    ASSERT_TRUE(t->save(other.path()).ok());
    EXPECT_EQ(read_file(other / "tokenizer.model").value(), bytes_of(all, name));
  }
  EXPECT_GE(n_texts, 200);
}

TEST(SentencePiece, AConfigurationAddsTokens) {
  const std::string model = bytes_of(fixture_of_models(), "bpe-bytes");
  TempDir dir;
  const auto plain = load_files(dir, model).value();
  const auto n = static_cast<int32_t>(plain.vocab_size());
  const auto with = [&](std::string_view config) { return load_files(dir, model, config); };
  const auto ids = [](const Tokenizer& t, std::string_view text) { return t.encode(text).value(); };
  using Ids = std::vector<int32_t>;
  const auto join = [](const std::vector<Ids>& parts) {
    Ids all;
    for (const Ids& p : parts) all.insert(all.end(), p.begin(), p.end());
    return all;
  };
  const Ids a = ids(plain, "a"), b = ids(plain, "the");
  EXPECT_EQ(ids(with(R"({"tokenizer_class": "LlamaTokenizer"})").value(), "a"), join({{1}, a}));
  EXPECT_EQ(ids(with(R"({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": false,
                         "add_eos_token": true})")
                    .value(),
                "a"),
            join({a, {2}}));
  const std::string added = cat(R"("added_tokens_decoder": {
      "1": {"content": "<s>", "special": true}, ")",
                                n, R"(": {"content": "<pad>", "special": true}})");
  const auto legacy = with(cat(R"({"add_bos_token": true, )", added, "}")).value();
  EXPECT_EQ(legacy.vocab_size(), n + 1);
  EXPECT_EQ(ids(legacy, "a<pad>the<s>"), join({{1}, a, {n}, b, {1}}));
  EXPECT_EQ(legacy.decode(legacy.inner(ids(legacy, "a<pad>the"))), "a<pad> the");
  EXPECT_TRUE(legacy.is_special(n) && legacy.is_special(2) && !legacy.is_special(b[0]));
  // Not legacy: what follows a token has no space in front.
  const auto now = with(cat(R"({"legacy": false, )", added, "}")).value();
  const Ids text = ids(now, "a<pad>the");
  EXPECT_EQ(now.decode(text), "a<pad>the");
  EXPECT_NE(text, join({a, {n}, b}));
  expect_error(with(R"({"tokenizer_class": "XLMRobertaTokenizer"})"), Code::kUnsupported,
               {"tokenizer.model", "XLMRobertaTokenizer"});
  expect_error(with(R"({"tokenizer_class": "T5Tokenizer"})"), Code::kUnsupported, {"extra ids"});
  expect_error(with(cat(R"({"added_tokens_decoder": {")", n + 1, R"(": {"content": "x"}}})")),
               Code::kInvalidArgument, {"'x'", cat(n + 1)});
}

TEST(SentencePiece, RefusesWhatItCannotRead) {
  const std::string model = bytes_of(fixture_of_models(), "unigram");
  const auto refuse = [](std::string_view bytes, Code code, std::string_view why) {
    expect_error(read_sentencepiece(bytes, false), code, {why});
  };
  const auto field = [](int number, std::string_view bytes) {
    return cat(static_cast<char>(number << 3 | 2), static_cast<char>(bytes.size()), bytes);
  };
  const std::string unknown = field(1, cat(field(1, "<unk>"), "\x18\x02"));
  const std::string a = field(1, field(1, "a"));
  EXPECT_TRUE(read_sentencepiece(unknown + a, false).ok());
  refuse("", Code::kInvalidArgument, "no pieces");
  refuse(a, Code::kInvalidArgument, "no unknown piece");
  refuse(model.substr(0, model.size() - 1), Code::kInvalidArgument, "cut short");
  refuse(unknown + field(1, field(1, "\xff")), Code::kInvalidArgument, "piece 1 is no UTF-8");
  refuse(unknown + field(1, cat(field(1, "a"), "\x18\x05")), Code::kUnsupported, "unused");
  refuse(unknown + field(2, "\x18\x03"), Code::kUnsupported, "a model of words");
  refuse(unknown + field(2, std::string("\xc0\x01\x01", 3)), Code::kUnsupported, "suffix");
  refuse(unknown + field(3, "\x28" + std::string(1, '\0')), Code::kUnsupported, "spaces stay");
  refuse(unknown + field(3, field(2, "abc")), Code::kInvalidArgument, "charsmap");
  refuse(unknown + field(5, field(2, "abcd")), Code::kUnsupported, "way back");
  refuse(unknown + field(2, "\x18\x02") + field(1, field(1, "ab")) + a, Code::kUnsupported,
         "'ab' is not two pieces");
}

// A reader of any table stays within it.
TEST(SentencePiece, TablesOfNonsenseAreReadWithinTheirBounds) {
  for (uint32_t seed = 1; seed < 200; ++seed) {
    std::string bytes("\x40\0\0\0", 4);
    uint32_t x = seed;
    for (int i = 0; i < 80; ++i) bytes += static_cast<char>((x = x * 1664525 + 1013904223) >> 24);
    const auto map = Charsmap::read(bytes).value();
    for (int i = 0; i < 256; ++i) {
      const std::string text(3, static_cast<char>(i));
      EXPECT_LE(map.longest(text).n_bytes, text.size());
    }
  }
  EXPECT_FALSE(Charsmap::read("abc").ok());
  EXPECT_FALSE(Charsmap::read(std::string("\x40\0\0\0abc", 7)).ok());
  EXPECT_FALSE(from_base64("a*").ok());
}

TEST(Graphemes, AreACharacterWithItsMarks) {
  const auto bytes = [](std::string_view text) { return grapheme_bytes(text); };
  EXPECT_EQ(bytes("ab"), 1u);
  EXPECT_EQ(bytes("e\u0301\u0302x"), 5u);
  EXPECT_EQ(bytes("\r\n"), 2u);
  EXPECT_EQ(bytes("\n\u0301"), 1u);
  EXPECT_EQ(bytes("a\u200d"), 4u);
  EXPECT_EQ(bytes("\u0600a"), 3u);
  EXPECT_EQ(bytes("\xff\u0301"), 1u);
  EXPECT_EQ(bytes("a\u0903"), 4u);
  EXPECT_EQ(bytes("a\u1038"), 1u);  // a mark that stands alone
}

}  // namespace
}  // namespace tegula
