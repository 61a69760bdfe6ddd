// The settings of models by the keys that GGUF files have for them.
#pragma once

#include <span>
#include <string_view>

#include "tegula/io/json.h"
#include "tegula/models/common/gguf_architectures.h"

namespace tegula {

struct GgufSetting {
  std::string_view key;      // behind "llama."
  std::string_view setting;  // its name
  bool is_needed = false;
  std::string_view absent = {};  // JSON that a missing key means; "": what it means in config.json
  // The architectures that have it, by spaces; "": all.
  std::string_view only = {};
  enum class Norm : uint8_t { kAny, kLayer, kRms } norm = Norm::kAny;
  bool is_of(const GgufArchitecture& a) const;
};
std::span<const GgufSetting> gguf_settings();
// A family's, by name; null: it has none.
const Field* find_setting(const ModelDef& model, std::string_view setting);

// Angles that are divided by a list: as llama3's rule where that gives the list, else the list
// itself, as a LongRoPE whose two lists are one.
Json scaling_of_divisors(const Json& divisors, double theta, double dims);
// Llama 3's divisors of each pair.
std::vector<float> llama3_divisors(double theta, int64_t dims, double factor, double low,
                                   double high, double original);

}  // namespace tegula
