#include "tegula/base/dot_dims.h"

#include <algorithm>

namespace tegula {

bool DimNames::has(std::string_view name) const { return std::find(begin(), end(), name) != end(); }

DimNames DimNames::in(const DimNames& other) const {
  DimNames out;
  for (std::string_view name : *this)
    if (other.has(name)) out.push_back(name);
  return out;
}

DimNames DimNames::not_in(const DimNames& other) const {
  DimNames out;
  for (std::string_view name : *this)
    if (!other.has(name)) out.push_back(name);
  return out;
}

bool DimNames::operator==(const DimNames& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string DimNames::text() const {
  std::string out;
  for (std::string_view name : *this) out += cat(out.empty() ? "" : " ", name);
  return out;
}

namespace {
Result<DimNames> names_of(std::string_view side, std::string_view text) {
  DimNames out;
  for (size_t i = side.find_first_not_of(' '); i != side.npos; i = side.find_first_not_of(' ', i)) {
    const size_t end = std::min(side.find(' ', i), side.size());
    if (out.size() == kMaxRank)
      return invalid_argument(
          cat("dot: \"", side, "\" of \"", text, "\" names more than ", kMaxRank, " dims"));
    out.push_back(side.substr(i, end - i));
    i = end;
  }
  return out;
}
}  // namespace

Result<DotDims> DotDims::parse(std::string_view text) {
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == text.npos || arrow == text.npos || comma > arrow || text.rfind(',') != comma)
    return invalid_argument(cat("dot: dims \"", text, "\" must be \"a, b -> c\""));
  DotDims d;
  d.a = TEGULA_TRY(names_of(text.substr(0, comma), text));
  d.b = TEGULA_TRY(names_of(text.substr(comma + 1, arrow - comma - 1), text));
  d.out = TEGULA_TRY(names_of(text.substr(arrow + 2), text));
  return d;
}

std::string DotDims::text() const { return cat(a.text(), ", ", b.text(), " -> ", out.text()); }

}  // namespace tegula
