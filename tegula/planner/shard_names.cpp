// Reads what is said of parameters: by names of dims, or tensor by tensor.
#include <charconv>

#include "tegula/base/algorithm.h"
#include "tegula/planner/nearest.h"
#include "tegula/planner/settings.h"
#include "tegula/planner/shard_plan.h"

namespace tegula::planner {

namespace {

constexpr std::string_view kNames[] = {"batch", "seq", "vocab", "hidden", "heads", "ff", "experts"};

// Names of a parameter's dims; "": none.
std::vector<std::string_view> names_of(const Function& f, const Param& p, const ModelDef& model) {
  const Shape& shape = f.type(p.value).shape;
  std::vector<std::string_view> names(static_cast<size_t>(shape.rank()));
  if (p.name == "tokens" || p.name == "targets") return {"batch", "seq"};
  if (p.role == Role::kInput) return names;
  const auto ends = [&](std::string_view with) { return p.name.ends_with(with); };
  if (ends(model.names.table) || ends(model.names.head)) return {"vocab", "hidden"};
  const auto cut = std::find_if(model.cuts.begin(), model.cuts.end(),
                                [&](const Cut& c) { return ends(c.name); });
  if (cut != model.cuts.end())
    names[static_cast<size_t>(cut->dim)] = !cut->units                        ? "ff"
                                           : cut->units == &setting::kExperts ? "experts"
                                                                              : "heads";
  // The rest of a weight goes along the residual stream: its last such dim.
  for (size_t d = names.size(); d-- > 0;)
    if (names[d].empty()) {
      if (cut == model.cuts.end() || names.size() > 1) names[d] = "hidden";
      break;
    }
  return names;
}

// The parts of a dim that lie side by side there: q, k and v.
int64_t parts_of(const Param& p, const ModelDef& model, int dim) {
  for (const Cut& c : model.cuts)
    if (p.name.ends_with(c.name) && c.dim == dim) return c.parts;
  return 1;
}

Result<size_t> axis_of(const Mesh& mesh, std::string_view name) {
  const int a = mesh.find(name);
  if (a < 0) return invalid_argument(cat("the mesh ", to_text(mesh), " has no axis ", name));
  return static_cast<size_t>(a);
}

}  // namespace

Result<std::vector<std::vector<std::optional<AxisSharding>>>> layout_of_names(
    const Function& step, const ModelConfig& config, const Mesh& mesh, std::string_view layout) {
  const ModelDef& model = *TEGULA_TRY(find_model(config.type));
  std::vector<std::vector<std::optional<AxisSharding>>> params(
      step.params.size(), std::vector<std::optional<AxisSharding>>(mesh.axes.size()));
  for (const auto& [name, axis] :
       TEGULA_TRY(parse_settings("--computation-layout", "NAME=AXIS", layout))) {
    if (std::find(std::begin(kNames), std::end(kNames), name) == std::end(kNames))
      return invalid_argument(
          cat("no dim is called ", name, ": there are ", nearest_names(name, kNames)));
    const size_t a = TEGULA_TRY(axis_of(mesh, axis));
    for (size_t p = 0; p < params.size(); ++p) {
      const auto names = names_of(step, step.params[p], model);
      for (size_t d = 0; d < names.size(); ++d) {
        if (names[d] != name) continue;
        if (params[p][a])
          return invalid_argument(cat("axis ", axis, " would split ", step.params[p].name,
                                      " twice: its dims ", params[p][a]->dim, " and ", d));
        const int dim = static_cast<int>(d);
        params[p][a] = AxisSharding::split(dim, parts_of(step.params[p], model, dim));
      }
    }
  }
  return params;
}

Status annotate(const Function& step, const Mesh& mesh, std::string_view text,
                std::vector<std::vector<std::optional<AxisSharding>>>& params) {
  for (const auto& [what, axis] : TEGULA_TRY(parse_settings("--shard", "NAME:DIM=AXIS", text))) {
    const size_t colon = what.rfind(':');
    int dim = -1;
    const char* end = what.data() + what.size();
    if (colon == what.npos ||
        std::from_chars(what.data() + colon + 1, end, dim) !=
            std::from_chars_result{end, std::errc()} ||
        dim < 0)
      return invalid_argument(cat("\"", what, "\" must be a parameter and its dim, NAME:DIM"));
    const std::string_view name = what.substr(0, colon);
    const size_t a = TEGULA_TRY(axis_of(mesh, axis));
    std::vector<std::string_view> all;
    bool found = false;
    for (size_t p = 0; p < params.size(); ++p) {
      all.push_back(step.params[p].name);
      if (!step.params[p].name.ends_with(name)) continue;
      found = true;
      const Shape& shape = step.type(step.params[p].value).shape;
      if (dim >= shape.rank())
        return invalid_argument(
            cat(step.params[p].name, " has ", shape.rank(), " dims: there is no dim ", dim));
      params[p][a] = AxisSharding::split(dim);
    }
    if (!found)
      return invalid_argument(
          cat("no parameter ends with ", name, ": the nearest are ", nearest_names(name, all)));
  }
  return {};
}

}  // namespace tegula::planner
