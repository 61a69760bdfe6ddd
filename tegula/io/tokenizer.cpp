#include "tegula/io/tokenizer.h"

#include <algorithm>
#include <charconv>

#include "tegula/io/utf8.h"

namespace tegula {
namespace {

constexpr int64_t kMaxVocabSize = 1'000'000;
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

std::string hex(uint32_t value, int n_digits) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, "%0*X", n_digits, value);
  return buffer;
}

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

std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  return tokens;
}

Result<int64_t> bpe_size(std::string_view kind) {
  int64_t n = 0;
  const std::string_view digits = kind.substr(4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (error != std::errc() || end != digits.data() + digits.size() || n < 256 || n > kMaxVocabSize)
    return invalid_argument(cat("tokenizer '", kind, "': bpe:N needs a vocabulary size N from 256 ",
                                "(the bytes alone) to ", kMaxVocabSize));
  return n;
}

}  // namespace

Result<Tokenizer> Tokenizer::train(std::string_view kind, std::string_view text) {
  Tokenizer t;
  if (kind == "bytes") {
    TEGULA_TRY(t.set_tokens(Kind::kBytes, all_bytes(), {}));
  } else if (kind == "chars") {
    if (text.empty()) return invalid_argument("the text that the tokenizer should learn is empty");
    TEGULA_TRY(t.set_tokens(Kind::kChars, alphabet(text), {}));
  } else if (kind.starts_with("bpe:")) {
    const int64_t size = TEGULA_TRY(bpe_size(kind));
    BpeVocabulary v = train_bpe(text, size);
    TEGULA_TRY(t.set_tokens(Kind::kBpe, std::move(v.tokens), std::move(v.merges)));
  } else {
    return invalid_argument(cat("unknown tokenizer '", kind, "'; choose bytes, chars or bpe:N"));
  }
  return t;
}

// Takes over a vocabulary and builds the tables that encode() reads.
Status Tokenizer::set_tokens(Kind kind, std::vector<std::string> tokens,
                             std::vector<BpeMerge> merges, const std::vector<bool>& is_added,
                             FirstWord cut) {
  kind_ = kind;
  tokens_ = std::move(tokens);
  merges_ = std::move(merges);
  byte_ids_.fill(-1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const std::string& token = tokens_[id];
    if (token.empty() || (!is_added.empty() && is_added[id])) continue;
    const CodePoint c = first_code_point(token);
    if (kind_ == Kind::kChars && c.is_valid && c.n_bytes == token.size()) {
      if (code_point_ids_.size() <= c.value) code_point_ids_.resize(c.value + 1, -1);
      code_point_ids_[c.value] = static_cast<int32_t>(id);
    } else if (token.size() == 1) {
      byte_ids_[static_cast<unsigned char>(token[0])] = static_cast<int32_t>(id);
    } else if (kind_ == Kind::kChars) {
      return invalid_argument(cat("token ", id, " of the vocabulary is not a single character"));
    }
  }
  if (kind_ == Kind::kChars) return {};
  for (int b = 0; b < 256; ++b)
    if (byte_ids_[static_cast<size_t>(b)] < 0)
      return invalid_argument(
          cat("the vocabulary lacks byte 0x", hex(static_cast<uint32_t>(b), 2)));
  bpe_ = BpeEncoder(merges_, byte_ids_, cut);
  return {};
}

Error Tokenizer::unknown_character(std::string_view text, size_t at) const {
  const CodePoint c = first_code_point(text.substr(at));
  const std::string name =
      c.is_valid ? cat("the character U+", hex(c.value, 4), " '", text.substr(at, c.n_bytes), "'")
                 : cat("the byte 0x", hex(c.value, 2), " (not UTF-8)");
  return invalid_argument(cat("the tokenizer 'chars' does not know ", name, " at byte ", at,
                              " of the text: it knows only the ", tokens_.size(),
                              " characters that it was trained on. Remove it, train with it, or ",
                              "use the tokenizer bytes or bpe:N, which take any text"));
}

Status Tokenizer::encode_chars(std::string_view text, std::vector<int32_t>& ids) const {
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

Status Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& ids) const {
  if (kind_ == Kind::kChars) return encode_chars(text, ids);
  if (kind_ == Kind::kBytes) {
    const size_t before = ids.size();
    ids.resize(before + text.size());
    for (size_t i = 0; i < text.size(); ++i)
      ids[before + i] = byte_ids_[static_cast<unsigned char>(text[i])];
  } else {
    ids.reserve(ids.size() + text.size() / 3);
    bpe_.encode(text, ids);
  }
  return {};
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids = before_;
  if (added_.empty()) {
    TEGULA_TRY(encode_plain(text, ids));
  } else {
    for (const AddedTokens::Piece& p : added_.split(text)) {
      if (p.id >= 0)
        ids.push_back(p.id);
      else
        TEGULA_TRY(encode_plain(p.text, ids));
    }
  }
  ids.insert(ids.end(), behind_.begin(), behind_.end());
  return ids;
}

std::string_view Tokenizer::token(int32_t id) const {
  return id >= 0 && id < vocab_size() ? std::string_view(tokens_[static_cast<size_t>(id)])
                                      : kReplacement;
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (int32_t id : ids) text += token(id);
  return text;
}

}  // namespace tegula
