#include "tegula/base/dot_dims.h"

#include "tegula/base/algorithm.h"
#include "tegula/base/text.h"

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

std::string DimNames::text() const { return joined(*this, " "); }

// One pass, since a compiler reads thousands of them.
Result<DotDims> DotDims::parse(std::string_view text) {
  Result<DotDims> read{DotDims()};
  DotDims& d = *read;
  DimNames* side = &d.a;
  const auto malformed = [&] {
    return invalid_argument(cat("dot: dims \"", text, "\" must be \"a, b -> c\""));
  };
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == ' ') {
      ++i;
    } else if (c == ',') {
      if (side != &d.a) return malformed();
      side = &d.b, ++i;
    } else if (c == '-' && i + 1 < text.size() && text[i + 1] == '>') {
      if (side != &d.b) return malformed();
      side = &d.out, i += 2;
    } else {
      size_t end = i + 1;
      while (end < text.size() && text[end] != ' ' && text[end] != ',' && text[end] != '-') ++end;
      if (side->size() == kMaxRank)
        return invalid_argument(
            cat("dot: dims \"", text, "\" name more than ", kMaxRank, " dims of an operand"));
      side->push_back(text.substr(i, end - i));
      i = end;
    }
  }
  if (side != &d.out) return malformed();
  return read;
}

std::string DotDims::text() const { return cat(a.text(), ", ", b.text(), " -> ", out.text()); }

}  // namespace tegula
