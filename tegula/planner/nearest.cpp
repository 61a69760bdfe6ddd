#include "tegula/planner/nearest.h"

#include <cctype>
#include <vector>

#include "tegula/base/algorithm.h"

namespace tegula::planner {

namespace {

// Levenshtein's distance without regard to case.
size_t edits(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (lower(a[i]) != lower(b[j]));
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string nearest_names(std::string_view name, std::span<const std::string_view> names) {
  name = name.substr(0, 64);  // nobody's name is longer, and the cost is a product
  std::vector<std::pair<size_t, std::string_view>> ranked;
  for (const std::string_view n : names) ranked.emplace_back(edits(name, n), n);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(3, ranked.size()); ++i) {
    if (i > 0) text += ", ";
    text += ranked[i].second;
  }
  return text;
}

}  // namespace tegula::planner
