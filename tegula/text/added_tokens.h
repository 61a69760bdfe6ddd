// Added tokens: names like <|endoftext|> that are found in text whole, before it is cut into words.
//
// At each place the longest name wins, and the search goes on behind it. Names that a normaliser
// does not touch are found first; the others, which are normalised themselves, in what is between
// them once it is normalised, as in the `tokenizers` library. A name may take the white space
// before it (strips_left) or behind it along, or count only as a word alone, with no letter, mark,
// digit or low line beside it. Cost: linear in the text, times the names that begin
// with the same byte.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tegula {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool strips_left = false, strips_right = false;
  bool is_normalized = false;
  bool is_special = false;  // no part of what a text says
  bool is_word_alone = false;
};

class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);
  const std::vector<AddedToken>& tokens(bool normalized) const {
    return rounds_[normalized].tokens;
  }
  bool empty(bool normalized) const { return rounds_[normalized].tokens.empty(); }

  struct Piece {
    std::string_view text;
    int32_t id = -1;  // -1: ordinary text
  };
  // The text, cut by the names that are normalised, or by those that are not; no piece is empty.
  std::vector<Piece> split(std::string_view text, bool normalized) const;

 private:
  struct Round {
    std::vector<AddedToken> tokens;                    // longest first
    std::array<std::vector<uint32_t>, 256> beginning;  // with this byte: indices, longest first
    const AddedToken* at(std::string_view rest) const;
    void split(std::string_view text, std::vector<Piece>& out) const;
  };
  Round rounds_[2];  // not normalised, normalised
};

}  // namespace tegula
