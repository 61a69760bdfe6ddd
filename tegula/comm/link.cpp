#include "tegula/comm/link.h"

#include <cstdlib>
#include <string_view>

#include "tegula/base/str.h"

namespace tegula {

namespace {
// The variable's number; `fallback` where it is not set.
Result<double> number_of(const char* variable, double least, double most, std::string_view unit,
                         double fallback) {
  const char* text = std::getenv(variable);
  if (!text) return fallback;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end != text && *end == '\0' && value >= least && value <= most) return value;
  return invalid_argument(cat(variable, "=", text, ": a slowed link needs ", unit, " from ", least,
                              " to ", most, "; unset it for the link as it is"));
}
}  // namespace

Result<LinkSpeed> link_speed_of_environment() {
  constexpr double kGiga = 1e9, kMicro = 1e-6;
  LinkSpeed s;
  s.bytes_per_s =
      kGiga * TEGULA_TRY(number_of("TEGULA_COMM_GB_PER_S", 1e-6, 1e4, "gigabytes a second", 0));
  s.latency_s = kMicro * TEGULA_TRY(number_of("TEGULA_COMM_LATENCY_US", 0, 1e7, "microseconds", 0));
  return s;
}

}  // namespace tegula
