// Text as a message shows it.
#pragma once

#include <string>
#include <string_view>

namespace tegula::cli {

// The text on one line: control bytes as \n, \t, \x00, \x1b.
std::string printable(std::string_view text);

}  // namespace tegula::cli
