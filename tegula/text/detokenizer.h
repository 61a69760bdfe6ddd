// Detokenizer: ids to text as they come; what may still change waits.
//
// All that it gives, joined, is Tokenizer::decode() of all ids in UTF-8, where bytes that make no
// character are as the `tokenizers` library shows them: U+FFFD for each longest part of a sequence
// that is cut short; of byte tokens (<0xE9>) that stand in a row and are no text, one for each
// byte. So the bytes of a character, and byte tokens up to the next other token, are held back.
#pragma once

#include <string>

#include "tegula/text/tokenizer.h"

namespace tegula {

class Detokenizer {
 public:
  // `begins`: the first id is the first of a text, and loses the blank that decode() takes there.
  explicit Detokenizer(const Tokenizer& tokenizer, bool begins = false)
      : tokenizer_(&tokenizer), begins_(begins) {}
  // The text that is certain now.
  std::string add(int32_t id);
  // And what is left when nothing follows.
  std::string rest();

 private:
  std::string take(bool is_last);
  const Tokenizer* tokenizer_;
  bool begins_;
  std::string bytes_;  // held back: the beginning of a character,
  std::string run_;    // or byte tokens in a row
  std::string front_;  // or what decode() may take from a text's beginning
  bool has_begun_ = false;
};

// All of it at once: what `tokenizers` makes of these ids.
std::string shown_text(const Tokenizer& tokenizer, std::span<const int32_t> ids);

}  // namespace tegula
