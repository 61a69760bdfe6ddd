#include "tegula/base/result.h"

#include <cstdio>
#include <cstdlib>
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

Error::Error(std::source_location w) : where(w) {}
Error::Error(Code c, std::string m, std::source_location w)
    : code(c), message(std::move(m)), where(w) {}
Error::Error(const Error& other) = default;
Error::Error(Error&& other) noexcept = default;
Error& Error::operator=(const Error& other) = default;
Error& Error::operator=(Error&& other) noexcept = default;
Error::~Error() = default;

Error invalid_argument(std::string m, std::source_location w) {
  return {Code::kInvalidArgument, std::move(m), w};
}
Error unsupported(std::string m, std::source_location w) {
  return {Code::kUnsupported, std::move(m), w};
}
Error out_of_memory(std::string m, std::source_location w) {
  return {Code::kOutOfMemory, std::move(m), w};
}
Error io_error(std::string m, std::source_location w) { return {Code::kIo, std::move(m), w}; }
Error internal_error(std::string m, std::source_location w) {
  return {Code::kInternal, std::move(m), w};
}

Failure::Failure(Error&& error) : error_(new Error(std::move(error))) {}
Error* Failure::copy_of(const Error& error) { return new Error(error); }
Error* Failure::moved_from() {
  static Error* const none = new Error;
  return none;
}
void Failure::free(Error* error) noexcept {
  if (error != moved_from()) delete error;
}
void Failure::abort() const {
  std::fprintf(stderr, "value() of a failed Result: %s\n", error_->to_string().c_str());
  std::abort();
}

void check_failed(const char* expr, std::source_location where, const TextPiece* pieces, size_t n) {
  const std::string message = join_text(pieces, n);
  std::fprintf(stderr, "tegula: broken invariant at %s: %s%s%s\n", place(where).c_str(), expr,
               message.empty() ? "" : ": ", message.c_str());
  std::abort();
}

}  // namespace tegula
