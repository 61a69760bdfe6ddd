#include "tegula/passes/dot_dims.h"

#include <algorithm>

#include "tegula/ops/table.h"

namespace tegula {

namespace {
std::vector<std::string_view> words(std::string_view s) {
  std::vector<std::string_view> out;
  for (size_t i = s.find_first_not_of(' '); i != s.npos; i = s.find_first_not_of(' ', i)) {
    const size_t end = std::min(s.find(' ', i), s.size());
    out.push_back(s.substr(i, end - i));
    i = end;
  }
  return out;
}
}  // namespace

DotDims::DotDims(std::string_view spec) {
  const size_t comma = spec.find(','), arrow = spec.find("->");
  a = words(spec.substr(0, comma));
  b = words(spec.substr(comma + 1, arrow - comma - 1));
  out = words(spec.substr(arrow + 2));
}

bool DotDims::has(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

int DotDims::trailing_n() const {
  int n = 0;
  for (std::string_view name : out) {
    if (!has(a, name)) {
      ++n;
    } else if (n > 0) {
      return -1;
    }
  }
  return n;
}

bool is_plain_dot(const Node& n) {
  return n.op == &dot_op && n.inputs.size() == 2 && !n.attrs.has("scale") &&
         !n.attrs.flag("bias") && n.attrs.get_or<std::string>("activation", "none") == "none";
}

}  // namespace tegula
