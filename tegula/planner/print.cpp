#include "tegula/planner/print.h"

#include <cstdarg>
#include <cstdio>

#include "tegula/base/text.h"

namespace tegula::planner {

void print(std::string& out, const char* format, ...) {
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  out += line;
}

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string gb(double bytes) { return printed("%.1f GB", bytes / 1e9); }

std::string percent(double share) { return printed("%.1f %%", 100 * share); }

}  // namespace tegula::planner
