// Names near a mistyped one.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tegula::planner {

// "llama3-8b, llama3-70b": the three names that fewest edits turn `name` into, nearest first.
// Cost: O(|name| · |candidate|) each.
std::string nearest_names(std::string_view name, std::span<const std::string_view> names);

}  // namespace tegula::planner
