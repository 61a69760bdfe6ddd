#include "tegula/io/added_tokens.h"

#include <algorithm>

#include "tegula/io/unicode.h"
#include "tegula/io/utf8.h"

namespace tegula {
namespace {

bool is_space(std::string_view text, size_t at) {
  const CodePoint c = first_code_point(text.substr(at));
  return c.is_valid && char_class(c.value) == CharClass::kSpace;
}

// Where the white space that ends at `end` begins, not before `least`.
size_t space_before(std::string_view text, size_t end, size_t least) {
  while (end > least) {
    size_t at = end - 1;
    while (at > least && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    if (!is_space(text, at)) break;
    end = at;
  }
  return end;
}

size_t space_behind(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text, at)) at += first_code_point(text.substr(at)).n_bytes;
  return at;
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
    const size_t begin = found->strips_left ? space_before(text, at, done) : at;
    at += found->content.size();
    const size_t end = found->strips_right ? space_behind(text, at) : at;
    if (begin > done) out.push_back({text.substr(done, begin - done)});
    out.push_back({text.substr(begin, end - begin), found->id});
    done = end;
  }
  if (done < text.size()) out.push_back({text.substr(done)});
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text) const {
  std::vector<Piece> first, pieces;
  rounds_[0].split(text, first);
  if (rounds_[1].tokens.empty()) return first;
  for (const Piece& p : first) {
    if (p.id >= 0)
      pieces.push_back(p);
    else
      rounds_[1].split(p.text, pieces);
  }
  return pieces;
}

}  // namespace tegula
