// A character is a token, and so is a byte of the training text that is not UTF-8.
#include <array>

#include "tegula/base/algorithm.h"
#include "tegula/io/utf8.h"
#include "tegula/text/tokenizer_kind.h"

namespace tegula {
namespace {

// The code points of the text in ascending order, then its bytes that are not UTF-8.
std::vector<std::string> alphabet(std::string_view text) {
  std::vector<bool> seen(0x110000);
  std::array<bool, 256> seen_byte{};
  while (!text.empty()) {
    const CodePoint c = first_code_point(text);
    if (c.is_valid)
      seen[c.value] = true;
    else
      seen_byte[c.value] = true;
    text.remove_prefix(c.n_bytes);
  }
  std::vector<std::string> tokens;
  for (char32_t c = 0; c < seen.size(); ++c)
    if (seen[c]) append_utf8(tokens.emplace_back(), c);
  for (size_t b = 0; b < seen_byte.size(); ++b)
    if (seen_byte[b]) tokens.emplace_back(1, static_cast<char>(b));
  return tokens;
}

// A byte that is not UTF-8 is written as the decoder "ByteFallback" reads it.
std::string name_of(const std::string& token) {
  if (first_code_point(token).is_valid) return token;
  return cat("<0x", to_hex(static_cast<unsigned char>(token[0]), 2), ">");
}

std::string token_of(const std::string& name) {
  unsigned byte = 0;
  if (name.size() == 6 && std::sscanf(name.c_str(), "<0x%2X>", &byte) == 1)
    return std::string(1, static_cast<char>(byte));
  return name;
}

class CharModel : public TokenModel {
 public:
  static Result<Vocabulary> make(std::vector<std::string> tokens,
                                 const std::vector<bool>& is_added = {});
  Status encode(std::string_view text, bool is_first, std::vector<int32_t>& ids) const override;
  Json::Object members() const override;

 private:
  Error unknown_character(std::string_view text, size_t at) const;
  std::vector<std::string> tokens_;
  std::array<int32_t, 256> byte_ids_;    // -1: none
  std::vector<int32_t> code_point_ids_;  // by code point; -1: none
};

Result<Vocabulary> CharModel::make(std::vector<std::string> tokens,
                                   const std::vector<bool>& is_added) {
  auto m = std::make_shared<CharModel>();
  m->byte_ids_.fill(-1);
  for (size_t id = 0; id < tokens.size(); ++id) {
    const std::string& token = tokens[id];
    if (token.empty() || (!is_added.empty() && is_added[id])) continue;
    const CodePoint c = first_code_point(token);
    if (c.is_valid && c.n_bytes == token.size()) {
      if (m->code_point_ids_.size() <= c.value) m->code_point_ids_.resize(c.value + 1, -1);
      m->code_point_ids_[c.value] = static_cast<int32_t>(id);
    } else if (token.size() == 1) {
      m->byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<int32_t>(id);
    } else {
      return invalid_argument(cat("token ", id, " of the vocabulary is not a single character"));
    }
  }
  m->tokens_ = tokens;
  return Vocabulary{std::move(tokens), std::move(m)};
}

Error CharModel::unknown_character(std::string_view text, size_t at) const {
  const CodePoint c = first_code_point(text.substr(at));
  const std::string name = c.is_valid ? cat("the character U+", to_hex(c.value, 4), " '",
                                            text.substr(at, c.n_bytes), "'")
                                      : cat("the byte 0x", to_hex(c.value, 2), " (not UTF-8)");
  return invalid_argument(cat("the tokenizer 'chars' does not know ", name, " at byte ", at,
                              " of the text: it knows only the ", tokens_.size(),
                              " characters that it was trained on. Remove it, train with it, or ",
                              "use the tokenizer bytes or bpe:N, which take any text"));
}

Status CharModel::encode(std::string_view text, bool, std::vector<int32_t>& ids) const {
  ids.reserve(ids.size() + text.size());
  std::array<int32_t, 128> ascii_ids;  // a short way for most text
  ascii_ids.fill(-1);
  std::copy_n(code_point_ids_.begin(), std::min<size_t>(code_point_ids_.size(), 128),
              ascii_ids.begin());
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 128 && ascii_ids[byte] >= 0) {
      ids.push_back(ascii_ids[byte]);
      ++at;
      continue;
    }
    const CodePoint c = first_code_point(text.substr(at));
    int32_t id = -1;
    if (!c.is_valid)
      id = byte_ids_[c.value];
    else if (c.value < code_point_ids_.size())
      id = code_point_ids_[c.value];
    if (id < 0) return unknown_character(text, at);
    ids.push_back(id);
    at += c.n_bytes;
  }
  return {};
}

Json::Object CharModel::members() const {
  Json::Object vocab;
  for (size_t id = 0; id < tokens_.size(); ++id) vocab.push_back({name_of(tokens_[id]), id});
  const auto typed = [](const char* type) { return Json::object({{"type", type}}); };
  // Without an unknown token in the vocabulary an unknown character is an error there too.
  return {
      {"model",
       Json::object({{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", "<unk>"}})},
      {"pre_tokenizer", Json::object({{"type", "Split"},
                                      {"pattern", Json::object({{"Regex", "[\\s\\S]"}})},
                                      {"behavior", "Isolated"},
                                      {"invert", false}})},
      {"decoder", Json::object({{"type", "Sequence"},
                                {"decoders", Json::Array{typed("ByteFallback"), typed("Fuse")}}})}};
}

Result<Vocabulary> train(std::string_view, std::string_view text) {
  if (text.empty()) return invalid_argument("the text that the tokenizer should learn is empty");
  return CharModel::make(alphabet(text));
}

bool is_it(const TokenizerFile& f) { return f.model_type == "WordLevel"; }

// Whether words are characters, each for itself.
class Characters : public WordSink {
 public:
  void take(std::string_view word) override { n += first_code_point(word).n_bytes == word.size(); }
  int n = 0;
};

Result<std::shared_ptr<const TokenModel>> read(const TokenizerFile& f) {
  TEGULA_TRY(check_keys(f.model, "model", {"vocab", "unk_token"}));
  Characters characters;
  f.words.cut("a b\n\u00e9", false, characters);
  if (characters.n != 5)
    return unsupported("its model WordLevel has words of more than a character");
  std::vector<std::string> tokens;
  for (const std::string& name : f.names) tokens.push_back(token_of(name));
  return TEGULA_TRY(CharModel::make(std::move(tokens), f.is_added)).model;
}

}  // namespace

const TokenizerKind kCharsTokenizer{"chars", train, is_it, read};

}  // namespace tegula
