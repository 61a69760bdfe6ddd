#include <charconv>

#include "tegula/planner/conv_split.h"
#include "tegula/planner/nearest.h"

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

// "a=b,c=d" item by item.
template <class F>
Status for_each_item(std::string_view flag, std::string_view text, F&& visit) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t equals = item.find('=');
    if (equals == item.npos)
      return invalid_argument(cat(flag, " '", item, "': write key=value, as in batch=32"));
    TEGULA_TRY(visit(item.substr(0, equals), item.substr(equals + 1)));
  }
  return {};
}

template <class Names>
Error no_such(std::string_view flag, std::string_view name, const Names& names) {
  return invalid_argument(
      cat(flag, " has no '", name, "': the nearest are ", nearest_names(name, names)));
}

}  // namespace

std::string_view conv_dim_name(ConvDim dim) { return kDimNames[static_cast<size_t>(dim)]; }

Result<ConvShape> parse_conv(std::string_view text) {
  ConvShape c;
  std::vector<std::string_view> seen;
  TEGULA_TRY(
      for_each_item("--conv", text, [&](std::string_view name, std::string_view value) -> Status {
        for (const std::string_view s : seen)
          if (s == name) return invalid_argument(cat("--conv gives ", name, " twice"));
        seen.push_back(name);
        for (const Key& k : kKeys) {
          if (k.name != name) continue;
          int64_t& n = c.*k.at;
          const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
          const int64_t least = name == "pad" ? 0 : 1;
          if (error != std::errc() || end != value.data() + value.size() || n < least ||
              n > kMostExtent)
            return invalid_argument(cat("--conv ", name, "=", value,
                                        ": must be a whole number from ", least, " to ",
                                        kMostExtent));
          return {};
        }
        std::vector<std::string_view> names;
        for (const Key& k : kKeys) names.push_back(k.name);
        return no_such("--conv", name, names);
      }));
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
  TEGULA_TRY(for_each_item(
      "--computation-layout", text, [&](std::string_view name, std::string_view axis) -> Status {
        std::optional<ConvDim> found;
        for (const ConvDim dim : kConvDims)
          if (conv_dim_name(dim) == name) found = dim;
        if (!found) return no_such("--computation-layout of a convolution", name, kDimNames);
        const int at = mesh.find(axis);
        if (at < 0)
          return invalid_argument(cat("--computation-layout ", name, "=", axis, ": --mesh ",
                                      to_text(mesh), " has no axis ", axis));
        if (settled[static_cast<size_t>(at)])
          return invalid_argument(cat("--computation-layout gives axis ", axis, " twice"));
        settled[static_cast<size_t>(at)] = found;
        return {};
      }));
  return settled;
}

}  // namespace tegula::planner
