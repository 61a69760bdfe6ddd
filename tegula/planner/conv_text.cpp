
#include "tegula/base/amounts.h"
#include "tegula/base/range.h"
#include "tegula/planner/conv_split.h"
#include "tegula/planner/nearest.h"
#include "tegula/planner/settings.h"

namespace tegula::planner {

namespace {

constexpr std::string_view kDimNames[] = {"batch", "out", "in", "height", "width"};
constexpr int64_t kMostExtent = int64_t{1} << 24;

struct Key {
  std::string_view name;
  int64_t ConvShape::*at;
};
constexpr Key kKeys[] = {{"batch", &ConvShape::batch},   {"in", &ConvShape::in},
                         {"out", &ConvShape::out},       {"height", &ConvShape::height},
                         {"width", &ConvShape::width},   {"kernel", &ConvShape::kernel},
                         {"stride", &ConvShape::stride}, {"pad", &ConvShape::pad}};

template <class Names>
Error no_such(std::string_view flag, std::string_view name, const Names& names) {
  return invalid_argument(
      cat(flag, " has no '", name, "': the nearest are ", nearest_names(name, names)));
}

Status set_key(std::string_view name, std::string_view value, ConvShape& c) {
  std::vector<std::string_view> names;
  for (const Key& k : kKeys) {
    names.push_back(k.name);
    if (k.name != name) continue;
    const auto n = read_count(value, name == "pad" ? 0 : 1, kMostExtent);
    if (!n.ok()) return named(cat("--conv ", name), n.error());
    c.*k.at = *n;
    return {};
  }
  return no_such("--conv", name, names);
}

}  // namespace

std::string_view conv_dim_name(ConvDim dim) { return kDimNames[static_cast<size_t>(dim)]; }

Result<ConvShape> parse_conv(std::string_view text) {
  ConvShape c;
  std::vector<std::string_view> seen;
  for (const auto& [name, value] :
       TEGULA_TRY(parse_settings("--conv", "KEY=NUMBER, as in batch=32", text))) {
    if (contains(seen, name)) return invalid_argument(cat("--conv gives ", name, " twice"));
    seen.push_back(name);
    TEGULA_TRY(set_key(name, value, c));
  }
  for (const int64_t extent : {c.height, c.width})
    if (c.kernel > extent + 2 * c.pad)
      return invalid_argument(cat("--conv: a kernel of ", c.kernel, " is larger than what it ",
                                  "slides over, ", extent, " with a pad of ", c.pad));
  if (c.pad >= c.kernel)
    return invalid_argument(cat("--conv: a pad of ", c.pad, " is no less than the kernel, ",
                                c.kernel, ": its outer outputs would be of nothing"));
  return c;
}

std::string to_text(const Mesh& mesh, const ConvSplit& split) {
  std::string text;
  for (const ConvDim dim : kConvDims) {
    std::string axes;
    for (size_t a = 0; a < split.size(); ++a)
      if (split[a] == dim) axes += cat(axes.empty() ? "" : "+", mesh.axes[a].name);
    if (!axes.empty()) text += cat(text.empty() ? "" : " ", conv_dim_name(dim), "=", axes);
  }
  return text;
}

Result<std::vector<std::optional<ConvDim>>> parse_conv_layout(const Mesh& mesh,
                                                              std::string_view text) {
  std::vector<std::optional<ConvDim>> settled(mesh.axes.size());
  constexpr std::string_view kFlag = "--computation-layout";
  for (const auto& [name, axis] : TEGULA_TRY(parse_settings(kFlag, "DIM=AXIS", text))) {
    const auto dim = std::find(std::begin(kDimNames), std::end(kDimNames), name);
    if (dim == std::end(kDimNames))
      return no_such(cat(kFlag, " of a convolution"), name, kDimNames);
    const int at = mesh.find(axis);
    if (at < 0)
      return invalid_argument(
          cat(kFlag, " ", name, "=", axis, ": --mesh ", to_text(mesh), " has no axis ", axis));
    auto& of_axis = settled[static_cast<size_t>(at)];
    if (of_axis) return invalid_argument(cat(kFlag, " gives axis ", axis, " twice"));
    of_axis = kConvDims[dim - std::begin(kDimNames)];
  }
  return settled;
}

}  // namespace tegula::planner
