#include "tegula/base/amounts.h"

#include <charconv>
#include <cmath>

namespace tegula {

namespace {

constexpr double k2To63 = 0x1p63;
// The relative error of a decimal fraction and of its product.
constexpr double kRounding = 0x1p-51;
// The largest bound that is shown as none.
constexpr int64_t kMany = int64_t{1} << 40;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lower(std::string_view text) {
  std::string out;
  for (const char c : text) out += lower(c);
  return out;
}

// The power of thousand, or of 1024, that a letter is for; 0: none.
int power_of(char letter) {
  constexpr std::string_view kLetters = "kmgtp";
  const size_t at = kLetters.find(letter);
  return at == kLetters.npos ? 0 : static_cast<int>(at) + 1;
}

// The factor of "", "k", "ki", "b"; 0: it is none.
double scale_of_count(std::string_view unit) {
  if (unit.empty()) return 1;
  if (unit == "b") return 1e9;
  const int power = power_of(unit[0]);
  if (power == 0) return 0;
  if (unit.size() == 1) return std::pow(1000.0, power);
  return unit.substr(1) == "i" ? std::pow(1024.0, power) : 0;
}

// The factor of "", "b", "k", "kb", "ki", "kib"; 0: it is none.
double scale_of_bytes(std::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  const int power = power_of(unit[0]);
  const std::string_view rest = unit.substr(1);
  if (power == 0) return 0;
  if (rest == "b") return std::pow(1000.0, power);
  return rest.empty() || rest == "i" || rest == "ib" ? std::pow(1024.0, power) : 0;
}

// A number and what stands behind it, in small letters.
struct Parts {
  double number = NAN;
  std::string unit;
};
Parts parts_of(std::string_view text) {
  Parts p;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return p;
  p.number = number;
  p.unit = lower(std::string_view(end, static_cast<size_t>(text.data() + text.size() - end)));
  return p;
}

template <class T>
std::string from_to(T least, T most, bool is_open) {
  return is_open ? cat("of at least ", least) : cat("from ", least, " to ", most);
}

}  // namespace

Result<int64_t> read_count(std::string_view text, int64_t least, int64_t most) {
  int64_t whole = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, whole);
  bool is_whole = error == std::errc() && end == last;
  if (!is_whole && text.find_first_of("eE") == text.npos) {
    const Parts p = parts_of(text);
    const double value = p.number * scale_of_count(p.unit), rounded = std::round(value);
    is_whole = scale_of_count(p.unit) > 0 && std::abs(value) < k2To63 &&
               std::abs(value - rounded) <= kRounding * std::abs(value);  // 1.1k is 1100
    if (is_whole) whole = static_cast<int64_t>(rounded);
  }
  if (is_whole && whole >= least && whole <= most) return whole;
  return invalid_argument(
      cat("must be a whole number ", from_to(least, most, most == kMany), ", not '", text, "'"));
}

Result<double> read_amount(std::string_view text, double least, double most) {
  const Parts p = parts_of(text);
  const double value = p.number * scale_of_count(p.unit);
  if (scale_of_count(p.unit) > 0 && value >= least && value <= most && std::isfinite(value))
    return value;
  return invalid_argument(
      cat("must be a number ", from_to(least, most, std::isinf(most)), ", not '", text, "'"));
}

Result<int64_t> read_bytes(std::string_view text) {
  const Parts p = parts_of(text);
  const double value = std::floor(p.number * scale_of_bytes(p.unit) * (1 + kRounding));
  if (value >= 1 && value < k2To63) return static_cast<int64_t>(value);
  return invalid_argument(cat(
      "must be an amount of memory, 512MiB, 2G, 80GB or a number of bytes, not \"", text, "\""));
}

Error named(std::string_view what, Error error) {
  error.message = cat(what, ": ", error.message);
  return error;
}

bool is_same_name(std::string_view a, std::string_view b) {
  const auto plain = [](std::string_view name) {
    std::string out;
    for (const char c : name)
      if (c != '-' && c != '_' && c != ' ') out += lower(c);
    return out;
  };
  return plain(a) == plain(b);
}

}  // namespace tegula
