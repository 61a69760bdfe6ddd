#include "tegula/ir/sharding.h"

#include <charconv>

namespace tegula {

int64_t Mesh::n_ranks() const {
  int64_t n = 1;
  for (const MeshAxis& a : axes) n *= a.size;
  return n;
}

int Mesh::find(std::string_view name) const {
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i].name == name) return static_cast<int>(i);
  return -1;
}

std::vector<int64_t> Mesh::at(int64_t rank) const {
  std::vector<int64_t> index(axes.size());
  for (size_t a = axes.size(); a-- > 0;) {
    index[a] = rank % axes[a].size;
    rank /= axes[a].size;
  }
  return index;
}

std::vector<int64_t> Mesh::group(int64_t rank, size_t axis) const {
  int64_t stride = 1;
  for (size_t a = axis + 1; a < axes.size(); ++a) stride *= axes[a].size;
  const int64_t first = rank - at(rank)[axis] * stride;
  std::vector<int64_t> ranks;
  for (int64_t i = 0; i < axes[axis].size; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

Result<Mesh> mesh_from_text(std::string_view text) {
  constexpr int64_t kMost = int64_t{1} << 20;
  Mesh mesh;
  const std::string whole(text);
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view axis = text.substr(0, end);
    const size_t eq = axis.find('=');
    int64_t size = 0;
    const char* last = axis.data() + axis.size();
    const bool is_number =
        eq != axis.npos && eq > 0 &&
        std::from_chars(axis.data() + eq + 1, last, size) == std::from_chars_result{last, {}};
    if (!is_number || size < 1)
      return invalid_argument(
          cat("mesh \"", whole, "\": \"", axis, "\" must be an axis and its ranks, like dp=2"));
    const std::string name(axis.substr(0, eq));
    if (mesh.find(name) >= 0)
      return invalid_argument(cat("mesh \"", whole, "\": axis ", name, " stands there twice"));
    if (size > kMost / mesh.n_ranks())
      return invalid_argument(cat("mesh \"", whole, "\": more than ", kMost, " ranks"));
    mesh.axes.push_back({name, size});
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return mesh;
}

std::string to_text(const Mesh& mesh) {
  std::string text;
  for (const MeshAxis& a : mesh.axes) text += cat(text.empty() ? "" : ",", a.name, "=", a.size);
  return text;
}

std::string to_text(const Mesh& mesh, const Sharding& sharding) {
  std::string text;
  for (size_t a = 0; a < sharding.size(); ++a) {
    const AxisSharding& s = sharding[a];
    if (s.is_replicated()) continue;
    text += cat(text.empty() ? "[" : ", ", mesh.axes[a].name, ":");
    if (s.is_split()) {
      text += cat(s.dim);
      if (s.parts > 1) text += cat("/", s.parts);
    } else {
      text += s.combine == Combine::kSum ? "+" : s.combine == Combine::kMax ? "max" : "min";
    }
  }
  return text.empty() ? text : text + "]";
}

bool divides(const Shape& shape, const AxisSharding& state, int64_t n) {
  if (!state.is_split()) return true;
  if (state.dim < 0 || state.dim >= shape.rank() || !shape[state.dim].is_const()) return false;
  const int64_t extent = shape[state.dim].bound();
  return extent > 0 && extent % (state.parts * n) == 0;
}

Result<Shape> local_shape(const Mesh& mesh, const Shape& shape, const Sharding& sharding) {
  Shape local = shape;
  for (size_t a = 0; a < sharding.size(); ++a) {
    const AxisSharding& s = sharding[a];
    if (!s.is_split()) continue;
    const MeshAxis& axis = mesh.axes[a];
    if (!divides(local, s, axis.size))
      return invalid_argument(cat("dim ", s.dim, " of ", shape, " cannot be split in ", s.parts,
                                  " parts over the ", axis.size, " ranks of ", axis.name));
    local[s.dim] = local[s.dim].bound() / axis.size;
  }
  return local;
}

Ranges local_ranges(const Mesh& mesh, int64_t extent, const Sharding& sharding, int dim,
                    std::span<const int64_t> at) {
  // The indices that are left, in order; each axis keeps its share of each part of them.
  Ranges ranges = {{0, extent}};
  for (size_t a = 0; a < sharding.size(); ++a) {
    const AxisSharding& s = sharding[a];
    if (!s.is_split() || s.dim != dim) continue;
    int64_t total = 0;
    for (const auto& [begin, end] : ranges) total += end - begin;
    const int64_t part = total / s.parts, share = part / mesh.axes[a].size;
    Ranges kept;
    for (int64_t p = 0; p < s.parts; ++p) {
      int64_t from = p * part + at[a] * share, left = share;
      for (const auto& [begin, end] : ranges) {
        if (from < end - begin && left > 0) {
          const int64_t n = std::min(left, end - begin - from);
          if (!kept.empty() && kept.back().second == begin + from)
            kept.back().second += n;
          else
            kept.emplace_back(begin + from, begin + from + n);
          left -= n, from += n;
        }
        from -= end - begin;
      }
    }
    ranges = std::move(kept);
  }
  return ranges;
}

Share local_share(const Mesh& mesh, const Shape& shape, const Sharding& sharding,
                  std::span<const int64_t> at) {
  std::vector<Ranges> dims;
  for (int d = 0; d < shape.rank(); ++d)
    dims.push_back(local_ranges(mesh, shape[d].bound(), sharding, d, at));
  return share_of_ranges(dims);
}

}  // namespace tegula
