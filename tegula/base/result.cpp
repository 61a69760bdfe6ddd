#include "tegula/base/result.h"

#include <cstring>

namespace tegula {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kOutOfMemory:
      return "out_of_memory";
    case Code::kIo:
      return "io";
    case Code::kDevice:
      return "device";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

static std::string place(const std::source_location& where) {
  const char* file = where.file_name();
  const char* slash = std::strrchr(file, '/');
  return cat(slash ? slash + 1 : file, ":", where.line());
}

std::string Error::to_string() const {
  return cat(code_name(code), ": ", message, " (", place(where), ")");
}

void check_failed(const char* expr, const std::string& message, std::source_location where) {
  std::fprintf(stderr, "tegula: broken invariant at %s: %s%s%s\n", place(where).c_str(), expr,
               message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace tegula
