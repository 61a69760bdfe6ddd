#include "tegula/base/text.h"

#include <cstdarg>
#include <cstdio>

#include "tegula/base/algorithm.h"

namespace tegula {

std::string_view take_until(char end, std::string_view& rest) {
  const size_t n = std::min(rest.find(end), rest.size());
  const std::string_view part = rest.substr(0, n);
  rest.remove_prefix(std::min(n + 1, rest.size()));
  return part;
}

std::vector<std::string> split(std::string_view text, char end) {
  std::vector<std::string> parts;
  while (!text.empty()) parts.emplace_back(take_until(end, text));
  return parts;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : int{c}; };
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (lower(a[i]) != lower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

std::string printed(const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, arguments)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again), va_end(arguments);
  return text;
}

}  // namespace tegula
