// Result<T>: a value or an Error, and the one macro that propagates it.
//
// Failure is a value, because the planner probes infeasible candidates as a matter of course.
// A broken invariant is not an error: TEGULA_CHECK aborts.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>
#include <utility>
#include <variant>

#include "tegula/base/str.h"

namespace tegula {

enum class Code { kInvalidArgument, kUnsupported, kOutOfMemory, kIo, kDevice, kInternal };

std::string_view code_name(Code code);

// What went wrong, why, and (in `message`) what to do about it. `where` is the place in the
// user's or our source that caused it: the call site for graph building, else the place of error.
struct Error {
  Code code = Code::kInternal;
  std::string message;
  std::source_location where = std::source_location::current();

  // "invalid_argument: message (file.cpp:12)"
  std::string to_string() const;
};

inline Error invalid_argument(std::string m,
                              std::source_location w = std::source_location::current()) {
  return {Code::kInvalidArgument, std::move(m), w};
}
inline Error unsupported(std::string m, std::source_location w = std::source_location::current()) {
  return {Code::kUnsupported, std::move(m), w};
}
inline Error out_of_memory(std::string m,
                           std::source_location w = std::source_location::current()) {
  return {Code::kOutOfMemory, std::move(m), w};
}
inline Error io_error(std::string m, std::source_location w = std::source_location::current()) {
  return {Code::kIo, std::move(m), w};
}
inline Error internal_error(std::string m,
                            std::source_location w = std::source_location::current()) {
  return {Code::kInternal, std::move(m), w};
}

template <class T = void>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}
  template <class U>
  requires(std::is_convertible_v<U, T> && !std::is_same_v<std::remove_cvref_t<U>, Result> &&
           !std::is_same_v<std::remove_cvref_t<U>, Error> &&
           !std::is_same_v<std::remove_cvref_t<U>, T>) Result(U&& value)
      : state_(std::in_place_index<0>, std::forward<U>(value)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Only when ok(); otherwise prints the error and aborts.
  T& value() & { return require(), std::get<0>(state_); }
  const T& value() const& { return require(), std::get<0>(state_); }
  T&& value() && { return require(), std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  void require() const {
    if (ok()) return;
    std::fprintf(stderr, "value() of a failed Result: %s\n", error().to_string().c_str());
    std::abort();
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::in_place_index<1>, std::move(error)) {}
  bool ok() const { return error_.index() == 0; }
  explicit operator bool() const { return ok(); }
  void value() const {
    if (ok()) return;
    std::fprintf(stderr, "value() of a failed Result: %s\n", error().to_string().c_str());
    std::abort();
  }
  const Error& error() const& { return std::get<1>(error_); }
  Error&& error() && { return std::get<1>(std::move(error_)); }

 private:
  std::variant<std::monostate, Error> error_;
};
using Status = Result<void>;

[[noreturn]] void check_failed(const char* expr, const std::string& message,
                               std::source_location where);

}  // namespace tegula

// T x = TEGULA_TRY(expr): the value of expr, or return its error from the enclosing function.
#define TEGULA_TRY(...)                                                       \
  ({                                                                          \
    auto&& tegula_try_result = (__VA_ARGS__);                                 \
    if (!tegula_try_result.ok()) return std::move(tegula_try_result).error(); \
    std::move(tegula_try_result).value();                                     \
  })

// A broken invariant of ours (never a user's mistake): prints and aborts.
#define TEGULA_CHECK(cond, ...)                                                                   \
  do {                                                                                            \
    if (!(cond)) [[unlikely]]                                                                     \
      ::tegula::check_failed(#cond, ::tegula::cat(__VA_ARGS__), std::source_location::current()); \
  } while (0)
