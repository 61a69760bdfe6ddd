// Text within HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace tegula {

// <, >, & and " escaped; what is not UTF-8, or a control character, becomes U+FFFD.
std::string escape_html(std::string_view text);

}  // namespace tegula
