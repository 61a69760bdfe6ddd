// Python's methods of texts, for templates' filters and methods.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/text/template_value.h"

namespace tegula::jinja {

// str.splitlines; `keeps`: with their ends.
std::vector<std::string_view> split_lines(std::string_view text, bool keeps);
// str.replace, so many times at most; -1: all. Error: more bytes than a text may have.
Result<std::string> replaced(std::string_view text, std::string_view from, std::string_view to,
                             int64_t most, const Work& work);
// Whether it has letters of a case.
bool is_cased(std::string_view text);

}  // namespace tegula::jinja
