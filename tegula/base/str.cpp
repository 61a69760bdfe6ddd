#include "tegula/base/str.h"

#include <cstdio>

namespace tegula {

void append_int(std::string& out, int64_t v) { out += std::to_string(v); }
void append_uint(std::string& out, uint64_t v) { out += std::to_string(v); }
void append(std::string& out, const char* s) { out += s; }
void append(std::string& out, const std::string& s) { out += s; }
void append(std::string& out, bool b) { out += b ? "true" : "false"; }
void append(std::string& out, double v) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", v);
  out += buffer;
}

void put_text(std::string& out, const void* text) { out += static_cast<const char*>(text); }
void put_string(std::string& out, const void* object) {
  out += *static_cast<const std::string*>(object);
}
void put_view(std::string& out, const void* object) {
  out += *static_cast<const std::string_view*>(object);
}
void put_int(std::string& out, const void* object) {
  append_int(out, *static_cast<const int*>(object));
}
void put_int64(std::string& out, const void* object) {
  append_int(out, *static_cast<const int64_t*>(object));
}
void put_uint64(std::string& out, const void* object) {
  append_uint(out, *static_cast<const uint64_t*>(object));
}
void put_double(std::string& out, const void* object) {
  append(out, *static_cast<const double*>(object));
}

std::string join_text(const TextPiece* pieces, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) pieces[i].put(out, pieces[i].object);
  return out;
}

}  // namespace tegula
