// "a=b,c=d", as flags say several things at once.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "tegula/base/result.h"

namespace tegula::planner {

// In their order. Error: an item without a key or a value, which names the flag and the form that
// it has: "KEY=VALUE, as in tp=8".
Result<std::vector<std::pair<std::string_view, std::string_view>>> parse_settings(
    std::string_view flag, std::string_view form, std::string_view text);

}  // namespace tegula::planner
