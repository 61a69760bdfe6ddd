#include "tegula/text/tokenizer.h"

#include <map>
#include <random>
#include <set>

#include "tegula/io/json.h"
#include "tegula/io/utf8.h"
#include "tegula/text/bpe.h"
#include "tegula/text/pretokenize.h"
#include "tegula/text/unicode.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

std::vector<std::string> words_of(std::string_view text, FirstWord cut = first_word) {
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, cut(text)));
    text.remove_prefix(words.back().size());
  }
  return words;
}

// Text of few different pieces, so that pairs repeat; with bytes that are not UTF-8.
std::string random_text(std::mt19937& random, size_t n_pieces, bool only_utf8 = false) {
  static constexpr std::string_view kPieces[] = {"a",  "b", "ab", "the", " the", " ", "  ",  "\n",
                                                 "'s", "é", "中", "😀",   "12",   ".", "aaa", "x=y"};
  std::string text;
  for (; n_pieces > 0; --n_pieces) {
    const uint32_t k = random() % 17;
    if (k < 16)
      text += kPieces[k];
    else if (!only_utf8)
      text += static_cast<char>(random());
  }
  return text;
}

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c < 0x110000; ++c) {
    std::string bytes;
    append_utf8(bytes, c);
    const CodePoint back = first_code_point(bytes);
    const bool is_surrogate = c >= 0xd800 && c <= 0xdfff;
    ASSERT_EQ(back.is_valid, !is_surrogate) << static_cast<uint32_t>(c);
    if (is_surrogate) continue;
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.n_bytes, bytes.size());
    ASSERT_EQ(showable_bytes(bytes), bytes.size());
    for (size_t n = 1; n < bytes.size(); ++n) {
      ASSERT_FALSE(first_code_point(std::string_view(bytes).substr(0, n)).is_valid);
      ASSERT_EQ(showable_bytes("x" + bytes.substr(0, n)), 1u);
    }
  }
  for (const char* bad : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(first_code_point(bad).is_valid);
    EXPECT_EQ(first_code_point(bad).n_bytes, 1u);
  }
}

TEST(Unicode, Classes) {
  const std::pair<char32_t, CharClass> cases[] = {
      {'a', CharClass::kLetter},    {'_', CharClass::kOther},     {'0', CharClass::kNumber},
      {'\n', CharClass::kSpace},    {0xa0, CharClass::kSpace},    {0xaa, CharClass::kLetter},
      {0xbd, CharClass::kNumber},   {0xd7, CharClass::kOther},    {0x301, CharClass::kOther},
      {0x4e2d, CharClass::kLetter}, {0x2167, CharClass::kNumber}, {0x3000, CharClass::kSpace},
      {0x200b, CharClass::kOther},  {0x1f600, CharClass::kOther}, {0x323af, CharClass::kLetter},
      {0x10ffff, CharClass::kOther}};
  for (const auto& [c, expected] : cases)
    EXPECT_EQ(char_class(c), expected) << static_cast<uint32_t>(c);
}

TEST(Pretokenize, CutsAsGpt2Does) {
  using Words = std::vector<std::string>;
  const std::pair<const char*, Words> cases[] = {
      {"Hello world", {"Hello", " world"}},
      {"don't we'll I'm they're", {"don", "'t", " we", "'ll", " I", "'m", " they", "'re"}},
      {"DON'T 's", {"DON", "'", "T", " '", "s"}},
      {"a  b", {"a", " ", " b"}},
      {"a   \n b", {"a", "   \n", " b"}},
      {"a\nb\n\nc", {"a", "\n", "b", "\n", "\n", "c"}},
      {"end  ", {"end", "  "}},
      {"x=12 345;", {"x", "=", "12", " 345", ";"}},
      {"''s''", {"''", "s", "''"}},
      {"\xc2\xa0"
       "é½\xe3\x80\x80\xe3\x80\x80中",
       {"\xc2\xa0", "é", "½", "\xe3\x80\x80", "\xe3\x80\x80", "中"}},
      {"a\xff\xfe b", {"a", "\xff\xfe", " b"}},
      {" ", {" "}},
      {"'", {"'"}},
      {"\t\tif", {"\t", "\t", "if"}},
  };
  for (const auto& [text, words] : cases) EXPECT_EQ(words_of(text), words) << text;
}

TEST(Pretokenize, CutsAsLlama3AndQwenDo) {
  using Words = std::vector<std::string>;
  const std::pair<const char*, Words> cases[] = {
      {"Hello world", {"Hello", " world"}},
      {"DON'T we'LL 'sam I'\xc5\xbf x",
       {"DON", "'T", " we", "'LL", " '", "sam", " I", "'\xc5\xbf", " x"}},
      {"'abc 'x", {"'abc", " '", "x"}},
      {"a.b\tc", {"a", ".b", "\tc"}},
      {"1234567 89", {"123", "456", "7", " ", "89"}},
      {"x!?\r\n\ny", {"x", "!?\r\n\n", "y"}},
      {"a  \n \n  b", {"a", "  \n \n", " ", " b"}},
      {"a\nb\n\n", {"a", "\n", "b", "\n\n"}},
      {"end   ", {"end", "   "}},
      {" ?! =", {" ?!", " ="}},
      {"\xff\xfe"
       "a",
       {"\xff\xfe", "a"}},
      {"é\xcc\x81x", {"é", "\xcc\x81x"}},
      {"'", {"'"}},
      {"\n", {"\n"}},
  };
  for (const auto& [text, words] : cases) {
    EXPECT_EQ(words_of(text, first_word_llama3), words) << text;
    if (std::string_view(text).find("1234") == std::string_view::npos)
      EXPECT_EQ(words_of(text, first_word_qwen), words) << text;
  }
  EXPECT_EQ(words_of("1234 5", first_word_qwen), (Words{"1", "2", "3", "4", " ", "5"}));
}

// The definition, recounted from scratch for each merge.
BpeVocabulary train_naive(const std::string& text, size_t vocab_size) {
  BpeVocabulary v;
  for (int b = 0; b < 256; ++b) v.tokens.emplace_back(1, static_cast<char>(b));
  std::vector<std::vector<int32_t>> words;
  for (const std::string& w : words_of(text)) {
    words.emplace_back();
    for (char c : w) words.back().push_back(static_cast<unsigned char>(c));
  }
  while (v.tokens.size() < vocab_size) {
    std::map<std::pair<int32_t, int32_t>, int> counts;
    for (const auto& w : words)
      for (size_t i = 0; i + 1 < w.size(); ++i) ++counts[{w[i], w[i + 1]}];
    const auto best = std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) {
      return a.second < b.second;  // the first of the largest: the smallest pair
    });
    if (best == counts.end() || best->second < 2) break;
    const auto [left, right] = best->first;
    const std::string joined =
        v.tokens[static_cast<size_t>(left)] + v.tokens[static_cast<size_t>(right)];
    const auto at = std::find(v.tokens.begin(), v.tokens.end(), joined);
    const auto id = static_cast<int32_t>(at - v.tokens.begin());
    if (at == v.tokens.end()) v.tokens.push_back(joined);
    v.merges.push_back({left, right, id});
    for (auto& w : words)
      for (size_t i = 0; i + 1 < w.size(); ++i)
        if (w[i] == left && w[i + 1] == right) {
          w[i] = id;
          w.erase(w.begin() + static_cast<ptrdiff_t>(i) + 1);
        }
  }
  return v;
}

std::vector<int32_t> encode_naive(const std::vector<BpeMerge>& merges, const std::string& text) {
  std::vector<int32_t> ids;
  for (const std::string& word : words_of(text)) {
    std::vector<int32_t> w;
    for (char c : word) w.push_back(static_cast<unsigned char>(c));
    while (true) {
      size_t best_rank = merges.size(), best_at = 0;
      for (size_t i = 0; i + 1 < w.size(); ++i)
        for (size_t rank = 0; rank < best_rank; ++rank)
          if (merges[rank].left == w[i] && merges[rank].right == w[i + 1])
            best_rank = rank, best_at = i;
      if (best_rank == merges.size()) break;
      w[best_at] = merges[best_rank].id;
      w.erase(w.begin() + static_cast<ptrdiff_t>(best_at) + 1);
    }
    ids.insert(ids.end(), w.begin(), w.end());
  }
  return ids;
}

TEST(Bpe, TrainerAndEncoderEqualTheDefinition) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 40; ++trial) {
    const std::string text = random_text(random, 5 + random() % 200);
    const BpeVocabulary fast = train_bpe(text, 256 + trial * 4);
    const BpeVocabulary naive = train_naive(text, 256 + static_cast<size_t>(trial) * 4);
    ASSERT_EQ(fast.tokens, naive.tokens) << trial;
    ASSERT_EQ(fast.merges, naive.merges) << trial;
    const std::string other = random_text(random, 100);
    const auto tokenizer = Tokenizer::train(cat("bpe:", 256 + trial * 4), text).value();
    ASSERT_EQ(tokenizer.encode(other).value(), encode_naive(fast.merges, other)) << trial;
  }
}

TEST(Bpe, TokensAreUniqueAndLongRunsAreFast) {
  const std::string run(300000, 'a');
  const auto tokenizer = Tokenizer::train("bpe:270", run).value();
  EXPECT_EQ(tokenizer.vocab_size(), 270);
  const auto ids = tokenizer.encode(run).value();
  EXPECT_EQ(tokenizer.decode(ids), run);
  EXPECT_EQ(ids.size(), 24u);  // 18 of 2^14, then 2^12 + 2^9 + 2^8 + 2^7 + 2^6 + 2^5
  std::mt19937 random(2);
  const BpeVocabulary v = train_bpe(random_text(random, 3000), 600);
  EXPECT_EQ(std::set<std::string>(v.tokens.begin(), v.tokens.end()).size(), v.tokens.size());
}

TEST(Tokenizer, AnyBytesRoundTrip) {
  std::mt19937 random(9);
  for (const char* kind : {"bytes", "bpe:256", "bpe:400"}) {
    const auto tokenizer = Tokenizer::train(kind, random_text(random, 2000)).value();
    for (int trial = 0; trial < 300; ++trial) {
      std::string text = random_text(random, random() % 40);
      if (trial % 2)
        for (char& c : text) c = static_cast<char>(random());
      const auto ids = tokenizer.encode(text).value();
      ASSERT_EQ(tokenizer.decode(ids), text) << kind;
      for (int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer.vocab_size());
    }
  }
}

TEST(Tokenizer, AnyTextOfTheAlphabetRoundTrips) {
  std::mt19937 random(10);
  const auto tokenizer = Tokenizer::train("chars", random_text(random, 2000, true)).value();
  for (int trial = 0; trial < 300; ++trial) {
    const std::string text = random_text(random, random() % 40, true);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text).value()), text);
  }
}

TEST(Tokenizer, CharsAreCodePointsInOrder) {
  const auto t = Tokenizer::train("chars", "héllo\nwörld 中😀").value();
  const std::string alphabet = "\n dhlorwéö中😀";
  const auto ids = t.encode(alphabet).value();
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], static_cast<int32_t>(i));
  EXPECT_EQ(t.vocab_size(), static_cast<int64_t>(ids.size()));
  EXPECT_EQ(t.decode(ids), alphabet);
  EXPECT_EQ(t.decode(std::vector<int32_t>{-1, 3, 99}), "\xef\xbf\xbdh\xef\xbf\xbd");
}

TEST(Tokenizer, CharsNamesWhatItDoesNotKnow) {
  const auto t = Tokenizer::train("chars", "abc").value();
  expect_error(t.encode("abé"), Code::kInvalidArgument,
               {"U+00E9", "'é'", "byte 2", "3 characters"});
  expect_error(t.encode("a\xff"), Code::kInvalidArgument, {"0xFF", "not UTF-8", "byte 1"});
}

TEST(Tokenizer, CharsKeepBytesOfTheTrainingTextThatAreNotUtf8) {
  TempDir dir;
  const std::string text =
      "b\xff"
      "aé\xe9z";
  const auto t = Tokenizer::train("chars", text).value();
  EXPECT_EQ(t.vocab_size(), 6);
  EXPECT_EQ(t.encode(text).value(), (std::vector<int32_t>{1, 5, 0, 3, 4, 2}));
  ASSERT_TRUE(t.save(dir.path()).ok());
  const auto loaded = Tokenizer::load(dir.path()).value();
  EXPECT_EQ(loaded.encode(text).value(), t.encode(text).value());
  EXPECT_EQ(loaded.decode(t.encode(text).value()), text);
}

TEST(Tokenizer, SavedAndLoadedGivesEqualIds) {
  std::mt19937 random(4);
  const std::string text = random_text(random, 3000, true);
  for (const char* kind : {"bytes", "chars", "bpe:256", "bpe:500"}) {
    TempDir dir;
    const auto t = Tokenizer::train(kind, text).value();
    ASSERT_TRUE(t.save(dir.path()).ok());
    const auto loaded = Tokenizer::load(dir.path());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->kind(), t.kind());
    EXPECT_EQ(loaded->vocab_size(), t.vocab_size());
    EXPECT_EQ(loaded->encode(text).value(), t.encode(text).value());
    for (int32_t id = 0; id < t.vocab_size(); ++id) EXPECT_EQ(loaded->token(id), t.token(id));
    EXPECT_EQ(loaded->files(), t.files());
  }
}

TEST(Tokenizer, TinyShakespeareHas65Symbols) {
  const auto text = read_file("../shared/data/tinyshakespeare.txt");
  if (!text.ok()) GTEST_SKIP() << "no tinyshakespeare.txt beside the repository";
  EXPECT_EQ(Tokenizer::train("chars", *text)->vocab_size(), 65);
}

TEST(Tokenizer, ReadsFilesOfOlderForm) {
  TempDir dir;
  auto t = Tokenizer::train("bpe:258", "abab abab").value();  // merges: ab, " ab" or abab
  Json json = Json::parse(t.files()[0].second, "t").value();
  Json model = *json.find("model");
  Json::Array merges;
  for (const Json& m : *model.find("merges")->as<Json::Array>())
    merges.push_back(*(*m.as<Json::Array>())[0].as<std::string>() + " " +
                     *(*m.as<Json::Array>())[1].as<std::string>());
  model.set("merges", std::move(merges));
  model.set("continuing_subword_prefix", "");
  auto* members = model.as<Json::Object>();  // GPT-2's own file does not say what it is
  std::erase_if(*members, [](const Json::Member& m) { return m.key == "type"; });
  json.set("model", std::move(model));
  json.set("added_tokens",
           Json::Array{Json::object({{"id", 258}, {"content", "<|end of text|>"}})});
  ASSERT_TRUE(write_file(dir / "tokenizer.json", json.dump()).ok());
  const auto old = Tokenizer::load(dir.path());
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_EQ(old->vocab_size(), 259);
  EXPECT_EQ(old->encode("abab x").value(), t.encode("abab x").value());
  EXPECT_EQ(old->decode(std::vector<int32_t>{258}), "<|end of text|>");
}

TEST(Tokenizer, BadKindsAndFilesAreErrors) {
  for (const char* kind : {"bpe:255", "bpe:", "bpe:x", "bpe:12345678", "bpe:300x", "bpe:-1"})
    expect_error(Tokenizer::train(kind, "text"), Code::kInvalidArgument, {kind, "256", "1000000"});
  expect_error(Tokenizer::train("words", "text"), Code::kInvalidArgument,
               {"'words'", "bytes, chars or bpe:N"});
  expect_error(Tokenizer::train("chars", ""), Code::kInvalidArgument, {"empty"});
  TempDir dir;
  expect_error(Tokenizer::load(dir.path()), Code::kIo, {"tokenizer.json", "ENOENT"});
  ASSERT_TRUE(write_file(dir / "vocab.json", "{}").ok());
  expect_error(Tokenizer::load(dir.path()), Code::kUnsupported, {"vocab.json", "save_pretrained"});
  const std::string good = Tokenizer::train("bpe:258", "abab abab").value().files()[0].second;
  const auto load_with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    EXPECT_NE(text.find(from), text.npos) << from;
    text.replace(text.find(from), from.size(), to);
    EXPECT_TRUE(replace_file(dir / "tokenizer.json", text).ok());
    return Tokenizer::load(dir.path());
  };
  EXPECT_TRUE(load_with("\"BPE\"", "\"BPE\"").ok());
  expect_error(load_with("\"BPE\"", "\"Unheard\""), Code::kUnsupported,
               {"Unheard", "tokenizer.json"});
  expect_error(load_with("\"normalizer\": null", "\"normalizer\": {}"), Code::kUnsupported,
               {"normalizer"});
  expect_error(load_with("\"a\": 97", "\"a\": 98"), Code::kInvalidArgument, {"are not 0, 1, 2"});
  expect_error(load_with("\"a\": 97", "\"a\": -1"), Code::kInvalidArgument, {"'a'"});
  expect_error(load_with("\"a\": 97", "\"aa\": 97"), Code::kInvalidArgument, {"merge 0"});
  // A byte that the vocabulary lacks is passed over, as in the library.
  const auto lacking = load_with("\"z\": 122", "\"zz\": 122");
  ASSERT_TRUE(lacking.ok()) << lacking.error().message;
  EXPECT_EQ(lacking->encode("xzy").value(), (std::vector<int32_t>{'x', 'y'}));
  expect_error(load_with("\"model\"", "\"modell\""), Code::kInvalidArgument, {"no model"});
  expect_error(load_with("{", ""), Code::kInvalidArgument, {"JSON"});
}

}  // namespace
}  // namespace tegula
