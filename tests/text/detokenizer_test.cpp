#include "tegula/text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tests/io/temp_dir.h"

namespace tegula {
namespace {

std::string streamed(const Tokenizer& t, std::span<const int32_t> ids, bool begins) {
  Detokenizer d(t, begins);
  std::string text;
  for (const int32_t id : ids) text += d.add(id);
  return text + d.rest();
}

// The library's text of bytes: each longest part of a sequence that is cut short is one U+FFFD.
TEST(Detokenizer, BytesThatAreNoTextAreShownAsTheLibraryDoes) {
  const Tokenizer bytes = Tokenizer::train("bytes", "").value();
  const std::string bad = "\xef\xbf\xbd";
  const std::pair<std::string, std::string> cases[] = {
      {"a\xc3\xa9z", "aéz"},
      {"\xf0\x9f\x98\x80", "😀"},
      {"\xf0\x9f\x98", bad},
      {"\xf0\x9f\x98x", bad + "x"},
      {"\xe4\xbd", bad},
      {"\xe4\xbd\xe4\xbd\xa0", bad + "你"},
      {"\xff\xfe", bad + bad},
      {"\xed\xa0\x80", bad + bad + bad},
      {"\xf4\x90\x80\x80", bad + bad + bad + bad},
      {"\xc0\x80", bad + bad},
      {"\xe0\x9f\xbf", bad + bad + bad},
      {"\xc3", bad},
      {"\x80z", bad + "z"},
  };
  for (const auto& [given, expected] : cases) {
    const auto ids = bytes.encode(given).value();
    EXPECT_EQ(streamed(bytes, ids, false), expected);
    EXPECT_EQ(streamed(bytes, ids, true), expected);
  }
}

TEST(Detokenizer, HoldsBackNoMoreThanACharacter) {
  const Tokenizer bytes = Tokenizer::train("bytes", "").value();
  Detokenizer d(bytes);
  EXPECT_EQ(d.add('a'), "a");
  EXPECT_EQ(d.add(0xf0), "");
  EXPECT_EQ(d.add(0x9f), "");
  EXPECT_EQ(d.add(0x98), "");
  EXPECT_EQ(d.add(0x80), "😀");
  EXPECT_EQ(d.add(0xe4), "");
  EXPECT_EQ(d.add('b'),
            "\xef\xbf\xbd"
            "b");
  EXPECT_EQ(d.add(0xe4), "");
  EXPECT_EQ(d.rest(), "\xef\xbf\xbd");
}

// A vocabulary that falls back to bytes, as Llama 2's; its texts begin without the blank.
TEST(Detokenizer, ByteTokensInARowAreTextOrNone) {
  Json vocab = Json::object();
  const char* names[] = {"<unk>", "▁Hi", "▁", "a", "<0xE4>", "<0xBD>", "<0xA0>", "<0x0A>"};
  for (int64_t i = 0; i < 8; ++i) vocab.set(names[i], i);
  const Json file = Json::parse(cat(R"({"version": "1.0", "normalizer": null, "pre_tokenizer": null,
      "post_processor": null, "added_tokens": [{"id": 0, "content": "<unk>", "special": true,
      "normalized": false, "lstrip": false, "rstrip": false, "single_word": false}],
      "decoder": {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
      "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true,
        "continuing_subword_prefix": null, "end_of_word_suffix": null, "byte_fallback": true,
        "ignore_merges": false, "merges": [], "vocab": )",
                                    vocab.dump(), "}}"),
                                "file")
                        .value();
  TempDir dir;
  ASSERT_TRUE(write_file(join_path(dir.path(), "tokenizer.json"), file.dump()).ok());
  const auto t = Tokenizer::load(dir.path());
  ASSERT_TRUE(t.ok()) << t.error().message;
  EXPECT_TRUE(t->is_special(0) && !t->is_special(1) && t->is_byte(7) && !t->is_byte(3));
  const std::string bad = "\xef\xbf\xbd";
  const std::pair<std::vector<int32_t>, std::string> cases[] = {
      {{1, 3}, "Hia"},
      {{2, 2, 3}, " a"},
      {{4, 5, 6, 3}, "你a"},
      {{4, 5, 3}, bad + bad + "a"},
      {{4, 5, 6, 4}, bad + bad + bad + bad},
      {{7, 4, 5, 6, 7}, "\n你\n"},
      {{4, 7}, bad + bad},
      {{}, ""},
      {{2}, ""},
  };
  for (const auto& [ids, expected] : cases) EXPECT_EQ(streamed(*t, ids, true), expected);
  EXPECT_EQ(streamed(*t, std::vector<int32_t>{1, 3}, false), " Hia");
}

// Joined, it is what decode() gives, whatever is held back on the way.
TEST(Detokenizer, JoinedIsDecoded) {
  std::mt19937 random(1);
  const Tokenizer bpe = Tokenizer::train("bpe:300", "the thé 你好 the 你好 😀😀 thé").value();
  for (int n = 0; n < 2000; ++n) {
    std::vector<int32_t> ids(random() % 12);
    for (int32_t& id : ids)
      id = static_cast<int32_t>(random() % static_cast<uint32_t>(bpe.vocab_size()));
    const std::string whole = bpe.decode(ids);
    std::string expected;
    const Tokenizer bytes = Tokenizer::train("bytes", "").value();
    Detokenizer d(bytes);
    for (const char c : whole) expected += d.add(static_cast<unsigned char>(c));
    expected += d.rest();
    EXPECT_EQ(streamed(bpe, ids, true), expected);
  }
}

}  // namespace
}  // namespace tegula
