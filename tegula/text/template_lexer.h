// Jinja's tokens, with white space around tags left out as `transformers` has it (trim_blocks,
// lstrip_blocks): a line break behind a block or comment goes, and blanks before one that begins
// its line; `-` takes all white space on its side, `+` leaves it.
// Errors: kInvalidArgument for tags that do not end and characters that begin no token,
// kUnsupported for names beyond ASCII and escapes that are not read; all with their line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/result.h"

namespace tegula::jinja {

struct Token {
  enum class Kind : uint8_t {
    kData,
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // unescaped
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text;
};

// The last one is kEnd.
Result<std::vector<Token>> read_tokens(std::string_view source);

}  // namespace tegula::jinja
