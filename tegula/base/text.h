// Texts taken apart at a separator, lists put together, and printf into a string.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tegula/base/str.h"

namespace tegula {

// The text before the first `end`, or all of it; that and the `end` are taken off `rest`.
std::string_view take_until(char end, std::string_view& rest);

// Its parts: "a,b," has two.
std::vector<std::string> split(std::string_view text, char end);

// "a, b, c": what `text_of` makes of each item, with `between` in between.
template <class Items, class F>
std::string joined(const Items& items, std::string_view between, F&& text_of) {
  std::string all;
  for (const auto& item : items)
    all += cat(all.empty() ? std::string_view() : between, text_of(item));
  return all;
}
template <class Items>
std::string joined(const Items& items, std::string_view between = ", ") {
  return joined(
      items, between, [](const auto& item) -> const auto& { return item; });
}

// Levenshtein's: how many insertions, deletions and changes of a byte make one text of the other,
// letters in ASCII being alike in either case. Cost: the product of their lengths.
size_t edit_distance(std::string_view a, std::string_view b);

// printf into a string.
__attribute__((format(printf, 1, 2))) std::string printed(const char* format, ...);

}  // namespace tegula
