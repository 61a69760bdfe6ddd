// Normalizer: what tokenizer.json has done to a text before it is cut into words.
//
// NFC, NFD, NFKC, NFKD, Lowercase, StripAccents (marks go), Strip (white space at the ends),
// Prepend, Replace (a string or a pattern), BertNormalizer, Precompiled (SentencePiece's tables, as
// `tokenizers` reads them), and sequences of these. Bytes that are
// not UTF-8 stay as they are. Errors: kUnsupported for other types and keys, by name. Cost: linear;
// ASCII passes the normal forms at the speed of a copy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/text/charsmap.h"
#include "tegula/text/splitter.h"

namespace tegula {

class Normalizer {
 public:
  // Null pointer or JSON's null: nothing.
  static Result<Normalizer> read(const Json* normalizer);
  bool empty() const { return steps_.empty(); }
  // Whether the first character of a text may be gone, or another's.
  bool moves_the_first() const;
  std::string apply(std::string_view text) const;

 private:
  enum class Kind : uint8_t {
    kNfd,
    kNfkd,
    kNfc,
    kNfkc,
    kLowercase,
    kStripAccents,
    kStrip,
    kPrepend,
    kReplace,
    kBert,
    kPrecompiled
  };
  struct Step {
    Kind kind = Kind::kNfc;
    std::string text{};     // prepended, or put in
    TextPattern pattern{};  // replaced
    Charsmap charsmap{};
    bool strips_left = false, strips_right = false;
    bool cleans = false, parts_chinese = false, strips_accents = false, lowers = false;
  };
  Status add(const Json& json);
  static std::string apply(const Step& step, std::string_view text);
  std::vector<Step> steps_;
  double growth_ = 1;  // at most, of a text's bytes by what is replaced
};

}  // namespace tegula
