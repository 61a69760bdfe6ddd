// Result<T>: a value or an Error, and the one macro that propagates it.
//
// Failure is a value, because the planner probes infeasible candidates as a matter of course.
// A broken invariant is not an error: TEGULA_CHECK aborts.
#pragma once

#include <cstdint>
#include <new>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tegula/base/str.h"

namespace tegula {

enum class Code { kInvalidArgument, kUnsupported, kOutOfMemory, kIo, kDevice, kInternal };

std::string_view code_name(Code code);

// `message` says what went wrong, why, and what to do about it. `where` is the place in the user's
// or our source that caused it: the call site for graph building, else the place of error.
struct Error {
  Code code = Code::kInternal;
  std::string message;
  std::source_location where;

  explicit Error(std::source_location w = std::source_location::current());
  Error(Code c, std::string m, std::source_location w = std::source_location::current());
  Error(const Error& other);
  Error(Error&& other) noexcept;
  Error& operator=(const Error& other);
  Error& operator=(Error&& other) noexcept;
  ~Error();
  // "invalid_argument: message (file.cpp:12)"
  std::string to_string() const;
};

Error invalid_argument(std::string m, std::source_location w = std::source_location::current());
Error unsupported(std::string m, std::source_location w = std::source_location::current());
Error out_of_memory(std::string m, std::source_location w = std::source_location::current());
Error io_error(std::string m, std::source_location w = std::source_location::current());
Error internal_error(std::string m, std::source_location w = std::source_location::current());

// The Error of a failed Result, apart from it, so that what succeeds neither carries nor parses it.
class Failure {
 public:
  Failure() = default;  // none
  explicit Failure(Error&& error);
  explicit Failure(const Error& error) : error_(copy_of(error)) {}
  Failure(const Failure& other) : error_(other.error_ ? copy_of(*other.error_) : nullptr) {}
  Failure(Failure&& other) noexcept : error_(other.error_) {
    if (error_) other.error_ = moved_from();
  }
  Failure& operator=(Failure other) noexcept { return std::swap(error_, other.error_), *this; }
  ~Failure() {
    if (error_) free(error_);
  }
  explicit operator bool() const { return error_ != nullptr; }
  Error& error() const { return *error_; }
  // Prints the error and aborts.
  [[noreturn]] void abort() const;

 private:
  static Error* copy_of(const Error& error);
  static Error* moved_from();  // an Error without a message
  static void free(Error* error) noexcept;
  Error* error_ = nullptr;
};

template <class T = void>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error&& error) : failure_(std::move(error)) {}
  Result(const Error& error) : failure_(error) {}
  template <class U>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, Error> &&
           !std::is_same_v<std::remove_cvref_t<U>, T>) Result(U&& value)
      : value_(std::forward<U>(value)) {}
  Result(const Result& other) : failure_(other.failure_) {
    if (ok()) new (&value_) T(other.value_);
  }
  Result(Result&& other) noexcept(std::is_nothrow_move_constructible_v<T>)
      : failure_(std::move(other.failure_)) {
    if (ok()) new (&value_) T(std::move(other.value_));
  }
  Result& operator=(Result other) noexcept(std::is_nothrow_move_constructible_v<T>) {
    this->~Result();
    return *new (this) Result(std::move(other));
  }
  ~Result() {
    if (ok()) value_.~T();
  }

  bool ok() const { return !failure_; }
  explicit operator bool() const { return ok(); }
  // Only when ok(); otherwise prints the error and aborts.
  T& value() & { return require(), value_; }
  const T& value() const& { return require(), value_; }
  T&& value() && { return require(), std::move(value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  // Only when not ok().
  const Error& error() const& { return failure_.error(); }
  Error&& error() && { return std::move(failure_.error()); }

 private:
  void require() const {
    if (!ok()) [[unlikely]]
      failure_.abort();
  }
  Failure failure_;
  union {
    T value_;  // where ok()
  };
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error&& error) : failure_(std::move(error)) {}
  Result(const Error& error) : failure_(error) {}
  bool ok() const { return !failure_; }
  explicit operator bool() const { return ok(); }
  void value() const {
    if (!ok()) failure_.abort();
  }
  const Error& error() const& { return failure_.error(); }
  Error&& error() && { return std::move(failure_.error()); }

 private:
  Failure failure_;
};
using Status = Result<void>;

// Joins the pieces, prints and aborts.
[[noreturn]] void check_failed(const char* expr, std::source_location where,
                               const TextPiece* pieces = nullptr, size_t n = 0);
template <class... Args>
[[noreturn]] void check_failed_with(const char* expr, std::source_location where,
                                    const Args&... args) {
  const TextPiece pieces[] = {text_piece(args)...};
  check_failed(expr, where, pieces, sizeof...(args));
}

}  // namespace tegula

// T x = TEGULA_TRY(expr): the value of expr, or return its error from the enclosing function.
#define TEGULA_TRY(...)                                                       \
  ({                                                                          \
    auto&& tegula_try_result = (__VA_ARGS__);                                 \
    if (!tegula_try_result.ok()) return std::move(tegula_try_result).error(); \
    std::move(tegula_try_result).value();                                     \
  })

// A broken invariant of ours (never a user's mistake): prints and aborts.
#define TEGULA_CHECK(cond, ...)                                                                \
  do {                                                                                         \
    if (!(cond)) [[unlikely]]                                                                  \
      ::tegula::check_failed_with(#cond,                                                       \
                                  std::source_location::current() __VA_OPT__(, ) __VA_ARGS__); \
  } while (0)
