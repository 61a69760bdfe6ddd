#include "tegula/planner/accelerator.h"

#include <vector>

#include "tegula/base/amounts.h"
#include "tegula/planner/nearest.h"
#include "tegula/planner/other_kinds.h"

namespace tegula::planner {

namespace {

struct NumberRow {
  Number number;
  std::string_view name;
  double bytes;
};
constexpr NumberRow kRows[] = {{Number::kF64, "f64", 8},   {Number::kF32, "f32", 4},
                               {Number::kTf32, "tf32", 4}, {Number::kBf16, "bf16", 2},
                               {Number::kF8, "fp8", 1},    {Number::kI8, "int8", 1}};

}  // namespace

std::string_view number_name(Number n) { return kRows[static_cast<int>(n)].name; }
double bytes_of(Number n) { return kRows[static_cast<int>(n)].bytes; }

Result<Number> parse_number(std::string_view name) {
  std::string names;
  for (const NumberRow& r : kRows) {
    if (r.name == name) return r.number;
    names += cat(names.empty() ? "" : ", ", r.name);
  }
  return invalid_argument(cat("dtype '", name, "' is none of ", names));
}

namespace {
// Other names of presets.
struct Alias {
  std::string_view name, preset;
};
constexpr Alias kAliases[] = {{"a100-80gb", "a100"},           {"a100-sxm", "a100"},
                              {"a100-sxm-80gb", "a100"},       {"a100-sxm4-80gb", "a100"},
                              {"a100-sxm-40gb", "a100-40gb"},  {"a100-sxm4-40gb", "a100-40gb"},
                              {"a100-pcie-80gb", "a100-pcie"}, {"h100-sxm", "h100"},
                              {"h100-sxm5", "h100"},           {"h100-80gb", "h100"},
                              {"h100-sxm-80gb", "h100"},       {"h200-sxm", "h200"},
                              {"h200-141gb", "h200"},          {"v100-32gb", "v100"},
                              {"v100-sxm2", "v100"},           {"4090", "rtx4090"}};
}  // namespace

Result<Accelerator> find_accelerator(std::string_view name, std::span<const Accelerator> own) {
  std::vector<std::string_view> names;
  for (const std::span<const Accelerator> list : {own, accelerator_presets()})
    for (const Accelerator& a : list) {
      if (is_same_name(a.name, name)) return a;
      names.push_back(a.name);
    }
  for (const Alias& alias : kAliases)
    if (is_same_name(alias.name, name)) return find_accelerator(alias.preset, own);
  if (const OtherKind* other = find_other_kind(name)) return unsupported(why_not_priced(*other));
  return invalid_argument(
      cat("there is no accelerator '", name, "': the nearest are ", nearest_names(name, names)));
}

}  // namespace tegula::planner
