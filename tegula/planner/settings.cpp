#include "tegula/planner/settings.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/str.h"

namespace tegula::planner {

Result<std::vector<std::pair<std::string_view, std::string_view>>> parse_settings(
    std::string_view flag, std::string_view form, std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = item.find('=');
    if (equals == item.npos || equals == 0 || equals + 1 == item.size())
      return invalid_argument(cat(flag, " '", item, "': write ", form));
    all.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return all;
}

}  // namespace tegula::planner
