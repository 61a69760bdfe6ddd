#include "tegula/ir/sharding.h"

#include <charconv>

#include "tegula/base/amounts.h"
#include "tegula/base/text.h"

namespace tegula {

bool is_identifier(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    if (!is_letter && !(i > 0 && c >= '0' && c <= '9')) return false;
  }
  return !name.empty();
}

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
    const std::string_view axis = take_until(',', text);
    const size_t eq = axis.find('=');
    const bool has_size = eq != axis.npos && eq > 0;
    const auto read = read_count(has_size ? axis.substr(eq + 1) : "", 1, INT64_MAX);
    if (!read.ok())
      return invalid_argument(
          cat("mesh \"", whole, "\": \"", axis, "\" must be an axis and its ranks, like dp=2"));
    const int64_t size = *read;
    const std::string name(axis.substr(0, eq));
    if (!is_identifier(name))
      return invalid_argument(cat("mesh \"", whole, "\": an axis is called \"", name,
                                  "\", must be of letters, digits and _, no digit first"));
    if (mesh.find(name) >= 0)
      return invalid_argument(cat("mesh \"", whole, "\": axis ", name, " stands there twice"));
    if (size > kMost / mesh.n_ranks())
      return invalid_argument(cat("mesh \"", whole, "\": more than ", kMost, " ranks"));
    mesh.axes.push_back({name, size});
  }
  return mesh;
}

std::string to_text(const Mesh& mesh) {
  return joined(mesh.axes, ",", [](const MeshAxis& a) { return cat(a.name, "=", a.size); });
}

std::string to_text(const Mesh& mesh, const Sharding& sharding) {
  std::string text;
  for (size_t a = 0; a < sharding.size() && a < mesh.axes.size(); ++a) {
    const AxisSharding& s = sharding[a];
    if (s.is_replicated()) continue;
    text += cat(text.empty() ? "[" : ", ", mesh.axes[a].name, ":");
    if (s.is_split()) {
      text += cat(s.dim);
      if (s.parts > 1) text += cat("/", s.parts);
    } else {
      text += pending_text(s.combine);
    }
  }
  return text.empty() ? text : text + "]";
}

std::string_view pending_text(Combine combine) {
  switch (combine) {
    case Combine::kSum:
      return "+";
    case Combine::kMax:
      return "max";
    case Combine::kMin:
      return "min";
    case Combine::kLogSumExp:
      return "lse";
    default:
      return "";
  }
}

namespace {

// Takes the next word or number off the text, or one other character.
std::string_view next_token(std::string_view& text) {
  const size_t begin = std::min(text.find_first_not_of(" \n\t\r"), text.size());
  size_t end = begin;
  while (end < text.size() &&
         (is_identifier(text.substr(end, 1)) || (text[end] >= '0' && text[end] <= '9')))
    ++end;
  if (end == begin && end < text.size()) ++end;
  const std::string_view token = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return token;
}

Result<int64_t> number_of(std::string_view token, std::string_view what) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t n = -1;
  const char* end = token.data() + token.size();
  if (std::from_chars(token.data(), end, n) != std::from_chars_result{end, {}} || n < 0 ||
      n > kMost)
    return invalid_argument(cat("expected ", what, ", found \"", token, "\""));
  return n;
}

// "0", "1/3", "+", "max".
Result<AxisSharding> state_from_text(std::string_view& text) {
  const std::string_view token = next_token(text);
  for (const Combine how : {Combine::kSum, Combine::kMax, Combine::kMin, Combine::kLogSumExp})
    if (token == pending_text(how)) return AxisSharding::pending(how);
  const int64_t dim = TEGULA_TRY(number_of(token, "a dim, +, max, min or lse"));
  if (dim >= kMaxRank)
    return invalid_argument(cat("dim ", dim, ": a tensor has at most ", kMaxRank, " dims"));
  std::string_view rest = text;
  if (next_token(rest) != "/") return AxisSharding::split(static_cast<int>(dim));
  text = rest;
  const int64_t parts = TEGULA_TRY(number_of(next_token(text), "how many parts the dim has"));
  return AxisSharding::split(static_cast<int>(dim), parts);
}

}  // namespace

Result<Sharding> sharding_from_text(const Mesh& mesh, std::string_view text) {
  const std::string whole(text);
  const auto wrong = [&](const auto&... what) {
    return invalid_argument(cat("sharding ", whole, ": ", what...));
  };
  Sharding sharding = replicated(mesh);
  std::vector<uint8_t> is_said(sharding.size());
  if (next_token(text) != "[") return wrong("expected [ first, as in [dp:0, tp:+]");
  std::string_view token = next_token(text);
  for (bool is_first = true; token != "]"; is_first = false, token = next_token(text)) {
    if (!is_first) {
      if (token != ",") return wrong("expected , or ], found \"", token, "\"");
      token = next_token(text);
    }
    const int a = mesh.find(token);
    if (a < 0) return wrong("there is no axis \"", token, "\" in the mesh \"", to_text(mesh), "\"");
    const auto axis = static_cast<size_t>(a);
    if (is_said[axis]) return wrong("axis ", token, " stands there twice");
    is_said[axis] = 1;
    if (next_token(text) != ":") return wrong("expected : behind axis ", token);
    auto state = state_from_text(text);
    if (!state.ok()) return wrong("axis ", token, ": ", state.error().message);
    sharding[axis] = *state;
  }
  if (const auto rest = next_token(text); !rest.empty())
    return wrong("nothing may follow ], found \"", rest, "\"");
  return sharding;
}

bool divides(const Shape& shape, const AxisSharding& state, int64_t n) {
  if (!state.is_split()) return true;
  if (state.dim < 0 || state.dim >= shape.rank() || !shape[state.dim].is_const()) return false;
  const int64_t extent = shape[state.dim].bound();
  return extent > 0 && extent % (state.parts * n) == 0;
}

Status check_sharding(const Mesh& mesh, const Shape& shape, const Sharding& sharding) {
  if (sharding.size() != mesh.axes.size())
    return invalid_argument(cat("it says where it lies on ", sharding.size(), " axes, the mesh \"",
                                to_text(mesh), "\" has ", mesh.axes.size(),
                                ": give a state for each of them"));
  Shape left = shape;
  for (size_t a = 0; a < sharding.size(); ++a) {
    const AxisSharding& s = sharding[a];
    const MeshAxis& axis = mesh.axes[a];
    if (s.is_pending() && pending_text(s.combine).empty())
      return invalid_argument(cat("parts over ", axis.name, " pend in a way that no ranks join: ",
                                  "they may be a sum, the largest, the least or a log-sum-exp"));
    if (!s.is_split()) continue;
    if (s.dim < 0 || s.dim >= shape.rank())
      return invalid_argument(cat(axis.name, " splits dim ", s.dim, " of ", shape, ", which has ",
                                  shape.rank(), " dims: name one of these"));
    if (!shape[s.dim].is_const())
      return invalid_argument(cat(axis.name, " splits dim ", s.dim, " of ", shape,
                                  ", whose extent is known in a run alone: split a constant dim"));
    if (s.parts < 1 || !divides(left, s, axis.size)) {
      const bool is_rest = !(left[s.dim] == shape[s.dim]);
      return invalid_argument(cat(
          "dim ", s.dim, " of ", shape, " cannot be split in ", s.parts, " parts over the ",
          axis.size, " ranks of ", axis.name, ": ",
          is_rest ? cat("the ", left[s.dim], " that earlier axes leave of it are") : "it is",
          " no multiple of ", s.parts, "*", axis.size, "; leave it whole or split another dim"));
    }
    left[s.dim] = left[s.dim].bound() / axis.size;
  }
  return {};
}

Result<Shape> local_shape(const Mesh& mesh, const Shape& shape, const Sharding& sharding) {
  TEGULA_TRY(check_sharding(mesh, shape, sharding));
  Shape local = shape;
  for (size_t a = 0; a < sharding.size(); ++a)
    if (sharding[a].is_split())
      local[sharding[a].dim] = local[sharding[a].dim].bound() / mesh.axes[a].size;
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
