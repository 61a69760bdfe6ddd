#include "tegula/models/common/rope_config.h"

#include "tegula/models/common/names.h"

namespace tegula {

namespace {

struct Scaling {
  std::string type = "default", said_by;  // the key that says so; "": none does
  double factor = 0, low = 0, high = 0, original = 0;
};

struct Object {
  const std::string& path;
  std::string key;  // rope_parameters
  const Json& json;

  Error wrong(std::string_view member, std::string_view what) const {
    const Json* value = json.find(member);
    return invalid_argument(cat("'", path, "': the key \"", key, ".", member, "\" ",
                                value ? cat("is ", value->dump(), ", ") : "is missing: ", what));
  }
  Error other(std::string_view member, std::string_view what) const {
    return unsupported(cat("'", path, "': tegula does not compute \"", key, ".", member,
                           "\": ", json.find(member)->dump(), what));
  }
  const Json* find(std::string_view member) const {
    const Json* value = json.find(member);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  Result<double> number(std::string_view member, double otherwise) const {
    const Json* value = find(member);
    if (value == nullptr && otherwise >= 0) return otherwise;
    if (value == nullptr || !value->is_number() || !(value->number(0) > 0))
      return wrong(member, "a positive number is needed");
    return value->number(0);
  }

  Result<Scaling> read(double max_seqlen) const {
    Scaling s;
    for (const std::string_view member : {"rope_type", "type"}) {
      const Json* value = find(member);
      if (value == nullptr) continue;
      const auto* name = value->as<std::string>();
      if (name == nullptr) return wrong(member, "not a string");
      if (*name != "default" && *name != "linear" && *name != "llama3")
        return other(member, "; it knows default, linear and llama3");
      if (!s.said_by.empty() && *name != s.type)
        return wrong(member, cat("and \"rope_type\" \"", s.type,
                                 "\": both mean one thing, remove the one that is wrong"));
      s.type = *name, s.said_by = cat(key, ".", member);
    }
    const bool is_llama3 = s.type == "llama3";
    for (const std::string_view member :
         {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
      if (find(member) && !is_llama3)
        return other(member, cat(" with the rope_type \"", s.type, "\""));
    if (s.type == "default") {
      if (const Json* factor = find("factor"); factor && factor->number(0) != 1)
        return other("factor", ", and there is no rope_type that says how");
      return s;
    }
    s.factor = TEGULA_TRY(number("factor", -1));
    if (!is_llama3) return s;
    s.low = TEGULA_TRY(number("low_freq_factor", -1));
    s.high = TEGULA_TRY(number("high_freq_factor", -1));
    s.original = TEGULA_TRY(number("original_max_position_embeddings", max_seqlen));
    if (s.low >= s.high)
      return wrong("low_freq_factor", cat("and must be below high_freq_factor ", s.high));
    return s;
  }
};

}  // namespace

Status read_rope_scaling(const Json& json, const std::string& path, ModelConfig& config) {
  Scaling found;
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* object = json.find(key);
    if (object == nullptr || object->as<Json::Object>() == nullptr) continue;
    const Scaling here =
        TEGULA_TRY(Object({path, key, *object}).read(static_cast<double>(config.max_seqlen)));
    if (here.said_by.empty()) continue;
    const bool is_same = here.type == found.type && here.factor == found.factor &&
                         here.low == found.low && here.high == found.high &&
                         here.original == found.original;
    if (!found.said_by.empty() && !is_same)
      return invalid_argument(cat("'", path, "': \"", here.said_by, "\" is \"", here.type,
                                  "\", and \"", found.said_by, "\" \"", found.type,
                                  "\", or their numbers differ: both mean one thing, remove the "
                                  "one that is wrong"));
    found = here;
  }
  if (found.type == "default") return {};
  config.set(setting::kRopeFactor, found.factor);
  if (found.type != "llama3") return {};
  config.set(setting::kRopeLow, found.low);
  config.set(setting::kRopeHigh, found.high);
  config.set(setting::kRopeOriginal, found.original);
  return {};
}

void write_rope_scaling(const ModelConfig& config, Json& json) {
  const double factor = config.number(setting::kRopeFactor);
  if (factor == 0) return;
  const double original = config.number(setting::kRopeOriginal);
  Json object =
      Json::object({{"rope_type", original > 0 ? "llama3" : "linear"}, {"factor", factor}});
  if (original > 0) {
    object.set("low_freq_factor", config.number(setting::kRopeLow));
    object.set("high_freq_factor", config.number(setting::kRopeHigh));
    object.set("original_max_position_embeddings", static_cast<int64_t>(original));
  }
  json.set("rope_scaling", std::move(object));
}

}  // namespace tegula
