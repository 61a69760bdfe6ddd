#include "tegula/base/container.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "tegula/base/algorithm.h"

namespace tegula {

namespace {

// "": there is no such file.
std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool contains(const std::vector<std::string>& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// mountinfo writes blanks and backslashes as \040.
std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_code = text[i] == '\\' && i + 3 < text.size();
    if (is_code)
      out += static_cast<char>(std::strtol(std::string(text.substr(i + 1, 3)).c_str(), nullptr, 8)),
          i += 3;
    else
      out += text[i];
  }
  return out;
}

// A tree of control groups: which of its groups is mounted, and where.
struct Mount {
  std::string root, point;
  std::vector<std::string> controllers;  // version 1
  bool is_version_2 = false;
};

// 36 35 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> all;
  for (const std::string& line : split(read(root + "/proc/self/mountinfo"), '\n')) {
    const auto words = split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool is_version_2 = dash[1] == "cgroup2";
    if (!is_version_2 && dash[1] != "cgroup") continue;
    all.push_back({unescaped(words[3]), unescaped(words[4]), split(dash[3], ','), is_version_2});
  }
  return all;
}

// The process's group in the mounted tree of a controller, and the groups above it, nearest first,
// as directories. In a container the path may be one that only the host sees: then what is mounted
// is the container's own group.
std::vector<std::string> groups(const std::string& root, const Mount& mount,
                                std::string_view controller) {
  std::string path;
  for (const std::string& line : split(read(root + "/proc/self/cgroup"), '\n')) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? first : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    if (mount.is_version_2 ? names.empty() : contains(split(names, ','), controller))
      path = line.substr(second + 1);
  }
  const std::string above = mount.root == "/" ? "" : mount.root;
  const bool is_inside = path.starts_with(above + "/") && !path.starts_with("/..");
  std::string below = is_inside ? path.substr(above.size()) : "";
  while (!below.empty() && below.back() == '/') below.pop_back();
  std::vector<std::string> all;
  for (;;) {
    all.push_back(root + mount.point + below);
    if (below.empty()) return all;
    below.resize(below.rfind('/'));
  }
}

// Version 1 says so with 2^63, less a page.
constexpr double kNoMemoryLimit = 0x1p60;

// 0: no limit.
double number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);  // "max" and -1 are no limits
  return end != text.c_str() && std::isfinite(value) ? std::max(value, 0.0) : 0;
}

template <class T>
void take_least(T& least, double limit) {
  if (limit > 0 && (least == 0 || limit < static_cast<double>(least)))
    least = static_cast<T>(limit);
}

}  // namespace

ContainerLimits container_limits(const std::string& root) {
  ContainerLimits least;
  for (const Mount& m : mounts(root)) {
    if (m.is_version_2 || contains(m.controllers, "cpu"))
      for (const std::string& group : groups(root, m, "cpu")) {
        std::string quota = read(group + "/cpu.cfs_quota_us"),
                    period = read(group + "/cpu.cfs_period_us");
        if (m.is_version_2) {  // "150000 100000"
          const auto words = split(read(group + "/cpu.max"), ' ');
          quota = words[0], period = words.size() > 1 ? words[1] : "";
        }
        if (number(period) > 0) take_least(least.cpus, number(quota) / number(period));
      }
    if (m.is_version_2 || contains(m.controllers, "memory"))
      for (const std::string& group : groups(root, m, "memory")) {
        const char* name = m.is_version_2 ? "/memory.max" : "/memory.limit_in_bytes";
        if (const double bytes = number(read(group + name)); bytes < kNoMemoryLimit)
          take_least(least.memory_bytes, bytes);
      }
  }
  return least;
}

const ContainerLimits& container_limits() {
  static const ContainerLimits limits = container_limits("");
  return limits;
}

int64_t usable_memory() {
  const int64_t all = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  const int64_t most = container_limits().memory_bytes;
  return most > 0 ? std::min(most, all) : all;
}

}  // namespace tegula
