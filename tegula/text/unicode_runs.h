// How the tables of unicode_tables.h are read.
#pragma once

#include <string_view>

#include "tegula/io/utf8.h"
#include "tegula/text/unicode_tables.h"

namespace tegula::unicode {

// visit(first code point, how many, value)
template <class Visit>
void for_each_run(std::string_view runs, Visit visit) {
  char32_t first = 0;
  for (size_t at = 0; at < runs.size();) {
    const int value = runs[at++] - '@';
    size_t n = 0;
    for (; at < runs.size() && runs[at] >= '0' && runs[at] <= '9'; ++at)
      n = n * 10 + static_cast<size_t>(runs[at] - '0');
    visit(first, n == 0 ? size_t{1} : n, value);
    first += static_cast<char32_t>(n == 0 ? 1 : n);
  }
}

// visit(character, what it becomes)
template <class Visit>
void for_each_mapping(std::string_view entries, Visit visit) {
  constexpr std::string_view kEnd = "\u00b6";
  while (!entries.empty()) {
    const CodePoint c = first_code_point(entries);
    const size_t end = entries.find(kEnd);
    visit(c.value, entries.substr(c.n_bytes, end - c.n_bytes));
    entries.remove_prefix(end + kEnd.size());
  }
}

}  // namespace tegula::unicode
