#include "tegula/io/html.h"

#include "tegula/io/utf8.h"

namespace tegula {

std::string escape_html(std::string_view text) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    // Control characters have no place in HTML, and some would be shown as other letters.
    const bool is_text = c.is_valid && (c.value >= 32 || c.value == '\n' || c.value == '\t') &&
                         (c.value < 127 || c.value > 159);
    if (!is_text)
      out += "\ufffd";
    else if (c.value == '<')
      out += "&lt;";
    else if (c.value == '>')
      out += "&gt;";
    else if (c.value == '&')
      out += "&amp;";
    else if (c.value == '"')
      out += "&quot;";
    else
      out += rest.substr(0, c.n_bytes);
    rest.remove_prefix(c.n_bytes);
  }
  return out;
}

}  // namespace tegula
