#include "tegula/cost/accelerator.h"

namespace tegula {

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

}  // namespace tegula
