// Unicode's normal forms, and lower case, of a text in code points.
//
// NFD decomposes canonically and sorts combining marks; NFKD decomposes by compatibility too; NFC
// and NFKC compose again. Lower case maps each character for itself (σ, never ς).
// What is no code point (0x110000 and above: bytes that are not UTF-8) stays where it is.
// The version is that of the `tokenizers` library: compared at every code point.
// Cost: linear; a look-up or two for each character beyond U+00BF.
#pragma once

#include <string>
#include <string_view>

namespace tegula {

enum class NormalForm { kNfd, kNfkd, kNfc, kNfkc };

std::u32string normal_form(std::u32string_view text, NormalForm form);
std::u32string lower_case(std::u32string_view text);

// UTF-8 as code points; a byte that is not UTF-8 is 0x110000 + byte, and comes back as it was.
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);

}  // namespace tegula
