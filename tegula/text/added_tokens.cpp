#include "tegula/text/added_tokens.h"

#include "tegula/base/range.h"
#include "tegula/io/utf8.h"
#include "tegula/text/unicode.h"

namespace tegula {
namespace {

// The length of the white-space character that `text` begins with, or 0.
size_t space_bytes(std::string_view text) {
  const CodePoint c = first_code_point(text);
  return c.is_valid && char_class(c.value) == CharClass::kSpace ? c.n_bytes : 0;
}

// Where the white space that ends at `end` begins, not before `least`.
size_t space_before(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    size_t n = 1;  // no white space has more than three bytes
    while (n < 3 && end - n > least && (static_cast<unsigned char>(text[end - n]) & 0xc0) == 0x80)
      ++n;
    if (space_bytes(text.substr(end - n, n)) != n) break;
    end -= n;
  }
  return end;
}

size_t space_behind(std::string_view text, size_t at) {
  while (at < text.size()) {
    const size_t n = space_bytes(text.substr(at));
    if (n == 0) break;
    at += n;
  }
  return at;
}

// The class \w of the library's patterns.
bool is_of_words(char32_t c) {
  constexpr char32_t kLetters[][2] = {{0x200c, 0x200d},
                                      {0x24b6, 0x24e9},
                                      {0x1f130, 0x1f149},
                                      {0x1f150, 0x1f169},
                                      {0x1f170, 0x1f189}};
  const Category of = category(c);
  if (of <= Category::kMe || of == Category::kNd || of == Category::kNl || of == Category::kPc)
    return true;
  return any_of(kLetters, [c](const auto& r) { return r[0] <= c && c <= r[1]; });
}

bool is_alone(std::string_view text, size_t begin, size_t end) {
  if (end < text.size()) {
    const CodePoint behind = first_code_point(text.substr(end));
    if (behind.is_valid && is_of_words(behind.value)) return false;
  }
  for (size_t n = 1; n <= 4 && n <= begin; ++n) {
    const CodePoint before = first_code_point(text.substr(begin - n, n));
    if (before.is_valid && before.n_bytes == n) return !is_of_words(before.value);
  }
  return true;
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (AddedToken& t : tokens)
    if (!t.content.empty()) rounds_[t.is_normalized].tokens.push_back(std::move(t));
  for (Round& r : rounds_) {
    std::stable_sort(r.tokens.begin(), r.tokens.end(), [](const auto& a, const auto& b) {
      return a.content.size() > b.content.size();
    });
    for (uint32_t i = 0; i < r.tokens.size(); ++i)
      r.beginning[static_cast<unsigned char>(r.tokens[i].content[0])].push_back(i);
  }
}

const AddedToken* AddedTokens::Round::at(std::string_view rest) const {
  for (const uint32_t i : beginning[static_cast<unsigned char>(rest[0])])
    if (rest.starts_with(tokens[i].content)) return &tokens[i];
  return nullptr;
}

void AddedTokens::Round::split(std::string_view text, std::vector<Piece>& out) const {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* found = at < done ? nullptr : this->at(text.substr(at));
    if (found == nullptr) {
      ++at;
      continue;
    }
    if (found->is_word_alone && !is_alone(text, at, at + found->content.size())) {
      at += found->content.size();
      continue;
    }
    const size_t begin = found->strips_left ? space_before(text, at, done) : at;
    at += found->content.size();
    const size_t end = found->strips_right ? space_behind(text, at) : at;
    if (begin > done) out.push_back({text.substr(done, begin - done)});
    out.push_back({text.substr(begin, end - begin), found->id});
    done = end;
  }
  if (done < text.size()) out.push_back({text.substr(done)});
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text, bool normalized) const {
  std::vector<Piece> pieces;
  rounds_[normalized].split(text, pieces);
  return pieces;
}

}  // namespace tegula
