// cat(a, b, ...) → std::string: joins strings, numbers and booleans; the light tool for messages.
//
// A call only lists its arguments; one function joins them, so that a message costs little code
// where it is written. A type of ours joins in by an append(std::string&, const T&) beside it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tegula {

void append_int(std::string& out, int64_t v);
void append_uint(std::string& out, uint64_t v);

inline void append(std::string& out, std::string_view s) { out += s; }
void append(std::string& out, const char* s);
void append(std::string& out, const std::string& s);
inline void append(std::string& out, char c) { out += c; }
void append(std::string& out, bool b);
template <class T>
requires std::is_integral_v<T>
void append(std::string& out, T v) {
  if constexpr (std::is_signed_v<T>) {
    append_int(out, v);
  } else {
    append_uint(out, v);
  }
}
void append(std::string& out, double v);
template <class T>
void append(std::string& out, const std::vector<T>& v) {
  out += '[';
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) out += ',';
    append(out, v[i]);
  }
  out += ']';
}

// Something to append: where it lies, and how to append what lies there.
struct TextPiece {
  const void* object;
  void (*put)(std::string& out, const void* object);
};
void put_text(std::string& out, const void* text);  // up to its 0
void put_string(std::string& out, const void* object);
void put_view(std::string& out, const void* object);
void put_int(std::string& out, const void* object);
void put_int64(std::string& out, const void* object);
void put_uint64(std::string& out, const void* object);
void put_double(std::string& out, const void* object);

inline TextPiece text_piece(const char* const& s) { return {s, put_text}; }
inline TextPiece text_piece(const std::string& s) { return {&s, put_string}; }
inline TextPiece text_piece(const std::string_view& s) { return {&s, put_view}; }
inline TextPiece text_piece(const int& v) { return {&v, put_int}; }
inline TextPiece text_piece(const int64_t& v) { return {&v, put_int64}; }
inline TextPiece text_piece(const uint64_t& v) { return {&v, put_uint64}; }
inline TextPiece text_piece(const double& v) { return {&v, put_double}; }
template <size_t N>
TextPiece text_piece(const char (&s)[N]) {
  return {s, put_text};
}
template <class T>
TextPiece text_piece(const T& v) {
  return {&v, [](std::string& out, const void* object) {
            append(out, *static_cast<const T*>(object));
          }};
}

std::string join_text(const TextPiece* pieces, size_t n);

template <class... Args>
std::string cat(const Args&... args) {
  if constexpr (sizeof...(args) == 0) {
    return {};
  } else {
    const TextPiece pieces[] = {text_piece(args)...};
    return join_text(pieces, sizeof...(args));
  }
}

}  // namespace tegula
