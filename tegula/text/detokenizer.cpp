#include "tegula/text/detokenizer.h"

#include "tegula/io/utf8.h"

namespace tegula {

namespace {
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

// How many bytes begin a character that is not whole; `may_go_on`: others may make it one.
size_t part_of_character(std::string_view text, bool& may_go_on) {
  const auto b = static_cast<unsigned char>(text[0]);
  const size_t length = b >= 0xf5 || b < 0xc2 ? 1 : b >= 0xf0 ? 4 : b >= 0xe0 ? 3 : 2;
  // Forms that are too long, surrogates and what is beyond U+10FFFF show in the second byte.
  const unsigned char low = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
  size_t n = 1;
  for (; n < length && n < text.size(); ++n) {
    const auto next = static_cast<unsigned char>(text[n]);
    if (next < (n == 1 ? low : 0x80) || next > (n == 1 ? high : 0xbf)) break;
  }
  may_go_on = n < length && n == text.size();
  return n;
}
}  // namespace

std::string Detokenizer::take(bool is_last) {
  std::string out;
  if (!run_.empty()) {
    if (is_utf8(run_))
      out = run_;
    else
      for (size_t i = 0; i < run_.size(); ++i) out += kReplacement;
    run_.clear();
  }
  std::string_view rest = bytes_;
  while (!rest.empty()) {
    const CodePoint c = first_code_point(rest);
    bool may_go_on = false;
    const size_t n = c.is_valid ? c.n_bytes : part_of_character(rest, may_go_on);
    if (may_go_on && !is_last) break;
    out += c.is_valid ? rest.substr(0, n) : kReplacement;
    rest.remove_prefix(n);
  }
  bytes_.erase(0, bytes_.size() - rest.size());
  if (!begins_) return out;
  front_ += out;
  const size_t n = tokenizer_->stripped(front_);
  if (n == front_.size() && !is_last) return "";
  begins_ = false;
  return front_.substr(n);
}

std::string Detokenizer::add(int32_t id) {
  const bool is_first = begins_ && !std::exchange(has_begun_, true);
  if (tokenizer_->is_byte(id)) {
    run_ += tokenizer_->token(id);
    return "";
  }
  std::string out;
  if (!run_.empty()) out = take(false);
  bytes_ += is_first ? tokenizer_->first_token(id) : std::string(tokenizer_->token(id));
  return out += take(false);
}

std::string Detokenizer::rest() { return take(true); }

std::string shown_text(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  Detokenizer d(tokenizer, true);
  std::string text;
  for (const int32_t id : ids) text += d.add(id);
  return text += d.rest();
}

}  // namespace tegula
