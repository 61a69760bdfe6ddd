// What flags accept, in words that say it: CLI11's own messages print 300 digits of the largest
// double.
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "cli/command.h"

namespace tegula::cli {

CLI::Option* whole(CLI::Option* option, int64_t low, int64_t high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    char* end = nullptr;
    errno = 0;
    const long long v = std::strtoll(text.c_str(), &end, 10);
    if (end != text.c_str() && *end == '\0' && errno == 0 && v >= low && v <= high) return "";
    return cat("must be a whole number ",
               high == kMany ? cat("of at least ", low) : cat("from ", low, " to ", high),
               ", not '", text, "'");
  };
  return option->check(CLI::Validator(check, "", ""))->type_name("N")->capture_default_str();
}

CLI::Option* real(CLI::Option* option, double low, double high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    char* end = nullptr;
    const double v = std::strtod(text.c_str(), &end);
    if (end != text.c_str() && *end == '\0' && std::isfinite(v) && v >= low && v <= high) return "";
    return cat("must be a number ",
               std::isinf(high) ? cat("of at least ", low) : cat("from ", low, " to ", high),
               ", not '", text, "'");
  };
  return option->check(CLI::Validator(check, "", ""))->type_name("X")->capture_default_str();
}

CLI::Option* one_of(CLI::Option* option, std::vector<std::string> names) {
  std::string list;
  for (const std::string& n : names) list += (list.empty() ? "" : "|") + n;
  const auto check = [names, list](const std::string& text) -> std::string {
    for (const std::string& n : names)
      if (n == text) return "";
    return cat("must be one of ", list, ", not '", text, "'");
  };
  return option->check(CLI::Validator(check, "", ""))->type_name(list)->capture_default_str();
}

void add_tuning(CLI::App& cmd, std::string& mode, std::string& directory) {
  one_of(cmd.add_option("--tune", mode,
                        "Time kernels' sizes on this machine and keep them: never other bits"),
         {"off", "quick", "full"});
  cmd.add_option("--tune-cache", directory, "Directory of tunings; default: the user's cache")
      ->type_name("DIR");
}

}  // namespace tegula::cli
