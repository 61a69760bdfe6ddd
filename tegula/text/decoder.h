// Decoder: what tokenizer.json's "decoder" makes of tokens' names when ids become text.
//
// ByteLevel, ByteFallback ("<0xE9>" is a byte), Replace, Fuse, Strip, Metaspace, WordPiece, and
// sequences of these; none at all puts a space between two tokens. A token's bytes are the same
// wherever it stands, but for the first one of a text, which may lose its space.
// Bytes are given as they are: those that make no UTF-8 are U+FFFD only where text is shown.
// Errors: kUnsupported for other types, keys and orders, by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/text/json_form.h"

namespace tegula {

class Decoder {
 public:
  static Result<Decoder> read(const Json* decoder);  // null pointer or JSON's null: none
  std::string text(std::string_view name, bool is_first) const;
  // Whether the name stands for a byte: "<0xE9>", where there is ByteFallback.
  bool is_byte(std::string_view name) const;
  // Whether the first token of a text may be another than text(name, false).
  bool minds_the_first() const;
  // How much of a whole text's beginning goes.
  size_t stripped(std::string_view text) const;

 private:
  enum class Kind : uint8_t {
    kByteLevel,
    kByteFallback,
    kReplace,
    kStrip,
    kMetaspace,
    kWordPiece,
    kJoin
  };
  struct Step {
    Kind kind;
    std::string from{}, to{};  // replaced; stripped; the prefix of WordPiece
    size_t at_begin = 0, at_end = 0;
    bool is_on = false;  // WordPiece cleans up; Metaspace has put a space in front
  };
  Status add(const Json& json);
  static std::string apply(const Step& step, std::string text, bool is_first);
  std::vector<Step> steps_;
  bool is_fused_ = false;
  std::string strips_;  // from the beginning of the whole text, so often
  size_t n_strips_ = 0;
};

// Of GPT-2's alphabet, in which a visible character stands for each byte: the bytes that a text's
// characters stand for. False: one of them is not of it.
bool from_visible(std::string_view text, std::string& bytes);
std::string to_visible(std::string_view bytes);

}  // namespace tegula
