#include "cli/printable.h"

#include "tegula/base/text.h"

namespace tegula::cli {

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (c == '\r')
      out += "\\r";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += printed("\\x%02x", byte);
    else
      out += c;
  }
  return out;
}

}  // namespace tegula::cli
