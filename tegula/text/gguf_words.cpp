#include "tegula/text/gguf_words.h"

#include "tegula/base/algorithm.h"
#include "tegula/text/json_form.h"

namespace tegula {
namespace {

constexpr std::string_view kGpt2 = "GPT-2";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
#define TEGULA_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define TEGULA_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define TEGULA_ENDS R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
#define TEGULA_WORD R"([^\r\n\p{L}\p{N}]?)"
constexpr std::string_view kO200k = TEGULA_WORD TEGULA_UPPER
    "*" TEGULA_LOWER "+" TEGULA_ENDS "|" TEGULA_WORD TEGULA_UPPER "+" TEGULA_LOWER "*" TEGULA_ENDS
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    TEGULA_WORD TEGULA_UPPER "*" TEGULA_LOWER "+|" TEGULA_WORD TEGULA_UPPER "+" TEGULA_LOWER
                             R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
#undef TEGULA_UPPER
#undef TEGULA_LOWER
#undef TEGULA_ENDS
#undef TEGULA_WORD

// Source: llama.cpp's table of pre-tokenizers, and the tokenizer.json of the models that they are
// named after.
constexpr GgufWords kWords[] = {
    {"gpt-2 phi-2 olmo mpt", {kGpt2}},
    {"llama-bpe llama3 llama-v3 falcon3", {kLlama3}, true, true},
    {"dbrx smaug-bpe", {kLlama3}},
    {"qwen2 stablelm2 deepseek-r1-qwen", {kQwen}},
    {"smollm starcoder refact command-r codeshell exaone", {kDigit, kGpt2}},
    {"gpt-4o llama4", {kO200k}},
    {"tekken", {kTekken}, true, true},
    {"default",
     {R"([\p{P}\$\+<=>\^~\|]+)",
      R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))", R"(\p{N}+)",
      R"([0-9][0-9][0-9])"}}};

Json byte_level(bool cuts) {
  return Json::object({{"type", "ByteLevel"},
                       {"add_prefix_space", false},
                       {"trim_offsets", true},
                       {"use_regex", cuts}});
}

// The patterns of a pre_tokenizer; false: it has a part that none of the table has.
bool patterns_of(const Json& json, std::vector<std::string>& found) {
  const std::string type = text_of(json.find("type"));
  if (type == "Sequence") {
    for (const Json& each : list_of(json.find("pretokenizers")))
      if (!patterns_of(each, found)) return false;
    return true;
  }
  if (type == "Digits" && is_true(json.find("individual_digits")))
    return found.emplace_back(kDigit), true;
  if (type == "ByteLevel" && !is_true(json.find("add_prefix_space"))) {
    const Json* cuts = json.find("use_regex");
    if (cuts == nullptr || is_true(cuts)) found.emplace_back(kGpt2);
    return true;
  }
  const Json* pattern = json.find("pattern");
  const bool is_split = type == "Split" && text_of(json.find("behavior")) == "Isolated" &&
                        !is_true(json.find("invert")) && pattern != nullptr;
  if (!is_split) return false;
  const std::string text = text_of(pattern->find("Regex"));
  // ByteLevel's own, written out.
  const bool is_gpt2 =
      text == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
  return found.emplace_back(is_gpt2 ? std::string(kGpt2) : text), !text.empty();
}

}  // namespace

const GgufWords* find_gguf_words(std::string_view name) {
  if (name.empty() || name.find(' ') != name.npos) return nullptr;
  for (const GgufWords& w : kWords)
    if (cat(" ", w.names, " ").find(cat(" ", name, " ")) != std::string::npos) return &w;
  return nullptr;
}

std::string gguf_words_names() {
  std::string all;
  for (const GgufWords& w : kWords)
    for (const char c : cat(all.empty() ? "" : " ", w.names))
      if (c == ' ')
        all += ", ";
      else
        all += c;
  return all;
}

Json pre_tokenizer_of(const GgufWords& words) {
  Json::Array steps;
  bool is_cut = true;
  for (const std::string_view pattern : words.patterns) {
    if (pattern.empty()) break;
    if (pattern == kGpt2) {
      is_cut = false;
      break;
    }
    if (pattern == kDigit)
      steps.push_back(Json::object({{"type", "Digits"}, {"individual_digits", true}}));
    else
      steps.push_back(Json::object({{"type", "Split"},
                                    {"pattern", Json::object({{"Regex", pattern}})},
                                    {"behavior", "Isolated"},
                                    {"invert", false}}));
  }
  steps.push_back(byte_level(!is_cut));
  if (steps.size() == 1) return steps[0];
  return Json::object({{"type", "Sequence"}, {"pretokenizers", std::move(steps)}});
}

const GgufWords* words_like(const Json& pre_tokenizer, bool is_whole_first) {
  std::vector<std::string> found;
  if (!patterns_of(pre_tokenizer, found)) return nullptr;
  for (const GgufWords& w : kWords) {
    size_t n = 0;
    while (n < std::size(w.patterns) && !w.patterns[n].empty()) ++n;
    if (n == found.size() && std::equal(found.begin(), found.end(), w.patterns) &&
        w.is_whole_first == is_whole_first)
      return &w;
  }
  return nullptr;
}

}  // namespace tegula
