#include "tegula/planner/device_sheet.h"

#include <cmath>
#include <set>

#include "tegula/base/amounts.h"
#include "tegula/planner/cluster.h"
#include "tegula/planner/nearest.h"

namespace tegula::planner {

namespace {

struct Key {
  std::string_view name;
  void (*set)(Accelerator&, double);
};
constexpr double kGiga = 1e9;

template <Number N>
void set_peak(Accelerator& a, double tflops) {
  a.flops_per_s[static_cast<int>(N)] = 1e12 * tflops;
}

constexpr Key kKeys[] = {
    {"f64-tflops", set_peak<Number::kF64>},
    {"f32-tflops", set_peak<Number::kF32>},
    {"tf32-tflops", set_peak<Number::kTf32>},
    {"bf16-tflops", set_peak<Number::kBf16>},
    {"fp8-tflops", set_peak<Number::kF8>},
    {"int8-tflops", set_peak<Number::kI8>},
    {"memory-gb", [](Accelerator& a, double v) { a.memory_bytes = kGiga * v; }},
    {"memory-gb-per-s", [](Accelerator& a, double v) { a.memory_bytes_per_s = kGiga * v; }},
    {"inside-gb-per-s", [](Accelerator& a, double v) { a.inside.bytes_per_s = kGiga * v; }},
    {"between-gb-per-s", [](Accelerator& a, double v) { a.between.bytes_per_s = kGiga * v; }},
    {"inside-us", [](Accelerator& a, double v) { a.inside.seconds = 1e-6 * v; }},
    {"between-us", [](Accelerator& a, double v) { a.between.seconds = 1e-6 * v; }},
    {"host-gb-per-s", [](Accelerator& a, double v) { a.host_bytes_per_s = kGiga * v; }},
    {"devices-per-node",
     [](Accelerator& a, double v) { a.devices_per_node = static_cast<int64_t>(v); }},
    {"sustained-product", [](Accelerator& a, double v) { a.sustained.product = v; }},
    {"sustained-clock", [](Accelerator& a, double v) { a.sustained.clock = v; }},
    {"dollars-per-hour", [](Accelerator& a, double v) { a.dollars_per_hour = v; }}};

}  // namespace

Result<Accelerator> make_accelerator(const DeviceSheet& sheet) {
  if (sheet.like.empty())
    return invalid_argument(
        cat("[", sheet.name, "] has no like: name the preset that it begins as, like = \"h100\""));
  auto found = find_accelerator(sheet.like);
  if (!found.ok()) return invalid_argument(cat("[", sheet.name, "] ", found.error().message));
  Accelerator a = std::move(*found);
  a.name = sheet.name, a.visible_bytes = 0, a.source = cat("the user, from ", sheet.like);
  std::set<std::string_view> set;
  for (const auto& [name, value] : sheet.numbers) {
    if (!(value > 0) || value > 1e12)
      return invalid_argument(
          cat("[", sheet.name, "] ", name, " = ", value, ": must be above 0, up to 1e12"));
    const Key* known = nullptr;
    std::vector<std::string_view> names;
    for (const Key& k : kKeys) {
      if (is_same_name(k.name, name)) known = &k;
      names.push_back(k.name);
    }
    if (known == nullptr)
      return invalid_argument(cat("[", sheet.name, "] has no key '", name, "': the nearest are ",
                                  nearest_names(name, names)));
    if (!set.insert(known->name).second)
      return invalid_argument(cat("[", sheet.name, "] has ", known->name, " twice"));
    if (known->name == "devices-per-node" && (value != std::floor(value) || value > 1 << 20))
      return invalid_argument(
          cat("[", sheet.name, "] devices-per-node = ", value, " is no number of devices"));
    if (known->name.starts_with("sustained") && value > 1)
      return invalid_argument(
          cat("[", sheet.name, "] ", known->name, " = ", value, " is a share: at most 1"));
    known->set(a, value);
    if (known->name.starts_with("sustained")) a.sustained.is_known = true, a.sustained.slow = kSlow;
  }
  return a;
}

}  // namespace tegula::planner
