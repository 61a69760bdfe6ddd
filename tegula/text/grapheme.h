// A reader's character: a code point with the marks that belong to it.
#pragma once

#include <cstddef>
#include <string_view>

namespace tegula {

// The bytes of the extended grapheme cluster that `text` begins with, for clusters of up to five
// bytes; longer ones (emoji, Hangul, Indic conjuncts) may be given in parts of four bytes and more.
// [Unicode Standard Annex 29, rules GB3 to GB9b]
size_t grapheme_bytes(std::string_view text);

}  // namespace tegula
