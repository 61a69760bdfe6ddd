// Every form of tokenizer gives the ids and the texts that the `tokenizers` library gives: those
// are in tokenizer_kinds.json, which tests/oracle/tokenizer_kinds.py writes.
#include "tegula/text/detokenizer.h"
#include "tegula/text/normal_form.h"
#include "tegula/text/pattern.h"
#include "tests/text/kinds.h"

namespace tegula {
namespace {

TEST(TokenizerKinds, IdsAndTextsEqualTheLibrarys) {
  const Json all = fixture();
  int n_texts = 0, n_decoded = 0;
  for (const auto& [name, kind] : *all.find("kinds")->as<Json::Object>()) {
    const auto t = load(file_of(all, kind));
    ASSERT_TRUE(t.ok()) << name << ": " << t.error().message;
    for (const Json& each : *kind.find("texts")->as<Json::Array>()) {
      const auto& [text, expected, back] = std::tie(
          (*each.as<Json::Array>())[0], (*each.as<Json::Array>())[1], (*each.as<Json::Array>())[2]);
      std::vector<int32_t> ids;
      for (const Json& id : *expected.as<Json::Array>())
        ids.push_back(static_cast<int32_t>(*id.as<int64_t>()));
      EXPECT_EQ(t->encode(*text.as<std::string>()).value(), ids) << name << ": " << text.dump();
      ++n_texts;
      // There, bytes that make no UTF-8 are U+FFFD; here they stay.
      if (back.as<std::string>()->find("\xef\xbf\xbd") != std::string::npos) continue;
      EXPECT_EQ(t->decode(ids), *back.as<std::string>()) << name << ": " << text.dump();
      ++n_decoded;
    }
  }
  EXPECT_GE(n_texts, 400);
  EXPECT_GE(n_decoded, 200);
}

TEST(TokenizerKinds, LongRunsComeBack) {
  const Json all = fixture();
  const size_t n = size_t{1} << 20;
  for (const char* name : {"o200k", "deepseek", "llama2"}) {
    const auto t = load(file_of(all, *all.find("kinds")->find(name)));
    ASSERT_TRUE(t.ok()) << name;
    for (const std::string& text : {std::string(n, ' ') + "a", std::string(n, '\n')}) {
      const auto ids = t->encode(text).value();
      EXPECT_EQ(t->decode(ids), std::string_view(name) == "llama2" ? "<s> " + text : text);
      EXPECT_EQ(t->decode(t->inner(ids)), text);
    }
  }
}

// The text that the library shows of it: it has no bytes.
TEST(TokenizerKinds, WhatIsNoUtf8IsShownAsTheLibraryDoes) {
  const Json all = fixture();
  const auto shown = [&](const char* name, std::string_view text) {
    const auto t = load(file_of(all, *all.find("kinds")->find(name)));
    EXPECT_TRUE(t.ok()) << name;
    return shown_text(*t, t->inner(t->encode(text).value()));
  };
  const std::string bad = "\ufffd";
  // Each part of the bytes that could begin a character is one replacement.
  EXPECT_EQ(shown("gpt2", "a\xe4\xb8 \xf0\x9f\x98 b"), "a" + bad + " " + bad + " b");
  EXPECT_EQ(shown("gpt2", "\xff\xc0\xed\xa0\x80"), bad + bad + bad + bad + bad);
  // SentencePiece's that stand together are characters throughout, or none of them is.
  EXPECT_EQ(shown("llama2", "\u0b95"), "\u0b95");
  EXPECT_EQ(shown("llama2", "\u0b95\xe0\xae x"), bad + bad + bad + bad + bad + " x");
}

TEST(TokenizerKinds, BytesThatAreNotUtf8ComeBack) {
  const Json all = fixture();
  const std::string text = "a\xff\xe4\xb8 \xe4\xb8\xad\xf0\x9f";
  for (const char* name :
       {"gpt2", "llama3", "o200k", "deepseek3", "qwen2", "starcoder", "llama2"}) {
    const auto t = load(file_of(all, *all.find("kinds")->find(name)));
    ASSERT_TRUE(t.ok()) << name;
    const auto back = t->decode(t->encode(text).value());
    EXPECT_EQ(back, std::string_view(name) == "llama2" ? "<s> " + text : text) << name;
  }
}

// Where the library goes by the place that a character had before it was normalised.
TEST(TokenizerKinds, ASpaceInFrontOfTheFirstWordAloneIsRefusedWhereThatMayBeAnothers) {
  const Json all = fixture();
  Json file = file_of(all, *all.find("kinds")->find("metaspace-first"));
  for (const char* step :
       {R"({"type": "StripAccents"})", R"({"type": "Strip", "strip_left": true})",
        R"({"type": "Replace", "pattern": {"String": "a"}, "content": "b"})"}) {
    file.set("normalizer", Json::parse(step, "n").value());
    expect_error(load(file), Code::kUnsupported, {"Metaspace", "first word alone"});
  }
  file.set("normalizer", nullptr);
  EXPECT_TRUE(load(file).ok());
}

std::vector<std::string> matches(std::string_view regex, std::string_view text) {
  const auto pattern = Pattern::compile(regex);
  EXPECT_TRUE(pattern.ok()) << regex << ": " << (pattern.ok() ? "" : pattern.error().message);
  if (!pattern.ok()) return {};
  Pattern::Finder finder(*pattern, text);
  std::vector<std::string> found;
  for (size_t at = 0; at < text.size();) {
    const Pattern::Match m = finder.find(at);
    if (m.begin == text.size()) break;
    found.emplace_back(text.substr(m.begin, m.end - m.begin));
    at = m.end;
  }
  return found;
}

// What Oniguruma finds, asked through the library's Split.
TEST(Pattern, FindsTheLeftmostMatch) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(matches("a|ab", "abab"), (Texts{"a", "a"}));
  EXPECT_EQ(matches("a*b", "aaab aab a"), (Texts{"aaab", "aab"}));
  EXPECT_EQ(matches("a*+ab|c", "aaabc"), Texts{"c"});  // possessive: nothing is given back
  EXPECT_EQ(matches("a{2}", "aaaaa"), (Texts{"aa", "aa"}));
  EXPECT_EQ(matches("a{,2}b", "aaab"), Texts{"aab"});
  EXPECT_EQ(matches(R"(\p{N}{1,3}+)", "12345678"), Texts{"12345678"});
  EXPECT_EQ(matches(R"(\s+$)", "a \n b \n"), (Texts{" ", " \n"}));
  EXPECT_EQ(matches("^a", "aaa\naa"), (Texts{"a", "a"}));
  EXPECT_EQ(matches("a$", "aaa\naa"), (Texts{"a", "a"}));
  EXPECT_EQ(matches("x(?=y)|x(?!z)", "xyxzx"), (Texts{"x", "x"}));
  EXPECT_EQ(matches("(?i:'ll|[ks])", "'lL\u017f\u212aS"), (Texts{"'lL", "\u017f", "\u212a", "S"}));
  EXPECT_EQ(matches(R"([^\s\p{L}]+)", "a1-\u00e9 \xff."), (Texts{"1-", "\xff."}));
  EXPECT_EQ(matches(R"([\]\-a-c\x41]|\u4e2d|\x{1f600})", "]-bdA中😀"),
            (Texts{"]", "-", "b", "A", "中", "😀"}));
  EXPECT_EQ(matches(R"(\P{L}|[\D])", "a1"), (Texts{"a", "1"}));
  EXPECT_EQ(matches("(a|b(c)?)d", "adbdbcdcd"), (Texts{"ad", "bd", "bcd"}));
}

TEST(Pattern, RefusesByName) {
  const auto refuse = [](std::string_view regex, std::string_view why) {
    expect_error(Pattern::compile(regex), Code::kUnsupported, {why, cat("'", regex, "'")});
  };
  refuse("(a", "a group that does not end");
  refuse("a)", "a ) that closes nothing");
  refuse("[a", "a [ that does not end");
  refuse("a**", "lazy or double repetition");
  refuse("(a)+b", "a repeated group");
  refuse("a|", "matches the empty text");
  refuse("a{3,2}", "{ as a character");
  refuse("a{1000}", "so many repetitions");
  refuse("(?<!a)b", "the group (?<!…");
  refuse(R"(\bword)", R"(\b)");
  refuse(R"([a&&b])", "a set within a set");
  refuse("(?i:\u00e9)", "beyond ASCII in any case");
  refuse(std::string(51, '(') + "a", "so deep a group");
  std::string ways = "b";
  for (int i = 0; i < 20; ++i) ways = "a?" + ways;
  refuse(ways, "so many ways");
}

TEST(NormalForm, ComposesAndSorts) {
  const auto form = [](std::string_view text, NormalForm f) {
    return to_utf8(normal_form(to_code_points(text), f));
  };
  EXPECT_EQ(form("e\u0301\u0323", NormalForm::kNfc), "\u1eb9\u0301");
  EXPECT_EQ(form("\u1eb9\u0301", NormalForm::kNfd), "e\u0323\u0301");
  EXPECT_EQ(form("\u1112\u1161\u11ab", NormalForm::kNfc), "\ud55c");
  EXPECT_EQ(form("\ud55c", NormalForm::kNfd), "\u1112\u1161\u11ab");
  EXPECT_EQ(form("\ufb01\u2460\u212b", NormalForm::kNfkc), "fi1\u00c5");
  EXPECT_EQ(form("\u0958\u0344", NormalForm::kNfc), "\u0915\u093c\u0308\u0301");  // excluded
  EXPECT_EQ(form("a\xff\u0301", NormalForm::kNfc), "a\xff\u0301");
  EXPECT_EQ(to_utf8(lower_case(to_code_points("\u0130\u03a3"))), "i\u0307\u03c3");
}

}  // namespace
}  // namespace tegula
