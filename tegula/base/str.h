// cat(a, b, ...) → std::string: joins strings, numbers and booleans; the light tool for messages.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tegula {

inline void append(std::string& out, std::string_view s) { out += s; }
inline void append(std::string& out, const char* s) { out += s; }
inline void append(std::string& out, const std::string& s) { out += s; }
inline void append(std::string& out, char c) { out += c; }
inline void append(std::string& out, bool b) { out += b ? "true" : "false"; }
template <class T>
requires std::is_integral_v<T>
void append(std::string& out, T v) { out += std::to_string(v); }
inline void append(std::string& out, double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", v);
  out += buffer;
}
template <class T>
void append(std::string& out, const std::vector<T>& v) {
  out += '[';
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) out += ',';
    append(out, v[i]);
  }
  out += ']';
}

template <class... Args>
std::string cat(const Args&... args) {
  std::string out;
  (append(out, args), ...);
  return out;
}

}  // namespace tegula
