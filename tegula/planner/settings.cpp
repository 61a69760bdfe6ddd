#include "tegula/planner/settings.h"

#include "tegula/base/text.h"

namespace tegula::planner {

Result<std::vector<std::pair<std::string_view, std::string_view>>> parse_settings(
    std::string_view flag, std::string_view form, std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> all;
  while (!text.empty()) {
    const std::string_view item = take_until(',', text);
    const size_t equals = item.find('=');
    if (equals == item.npos || equals == 0 || equals + 1 == item.size())
      return invalid_argument(cat(flag, " '", item, "': write ", form));
    all.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return all;
}

}  // namespace tegula::planner
