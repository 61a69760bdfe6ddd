#include "tegula/models/common/rope_config.h"

#include <algorithm>
#include <cmath>

#include "tegula/base/text.h"
#include "tegula/models/common/names.h"

namespace tegula {

namespace {

struct Kind {
  std::string_view type, needed, optional;
  bool has_original = false;
};
constexpr Kind kKinds[] = {
    {"default", "", ""},
    {"linear", "factor", ""},
    {"dynamic", "factor", ""},
    {"llama3", "factor low_freq_factor high_freq_factor", "", true},
    {"yarn", "", "factor attention_factor beta_fast beta_slow mscale mscale_all_dim truncate",
     true},
    {"longrope", "short_factor long_factor", "factor attention_factor", true},
};

bool is_in(std::string_view words, std::string_view word) {
  return any_word(words, [&](std::string_view w) { return w == word; });
}

// 4 and 4.0 are one number.
Json plain(const Json& value) {
  if (const auto* list = value.as<Json::Array>()) {
    Json::Array all;
    for (const Json& each : *list) all.push_back(plain(each));
    return all;
  }
  const double x = value.number(0.5);
  return x == std::floor(x) && std::abs(x) < 0x1p53 ? Json(static_cast<int64_t>(x)) : value;
}

struct Object {
  const std::string& path;
  std::string key;  // rope_parameters
  const Json& json;
  const ModelDef& model;
  const ModelConfig& config;

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
  // Families that say beside the object what was trained have LongRoPE alone, by three names.
  bool is_phi() const { return has_setting(model, setting::kTrainedContext); }

  Result<const Kind*> kind() const {
    const Kind* found = nullptr;
    for (const std::string_view member : {"rope_type", "type"}) {
      const Json* value = find(member);
      if (value == nullptr) continue;
      const auto* name = value->as<std::string>();
      if (name == nullptr) return wrong(member, "not a string");
      const bool is_alias = is_phi() && (*name == "su" || *name == "yarn");
      const auto kind =
          std::ranges::find(kKinds, is_alias ? std::string_view("longrope") : *name, &Kind::type);
      const bool is_known = kind != std::end(kKinds) &&
                            (!is_phi() || kind->type == "default" || kind->type == "longrope");
      if (!is_known)
        return other(member, is_phi() ? std::string("; it knows default and longrope")
                                      : cat("; it knows default, ", kRopeTypes));
      if (found != nullptr && kind != found)
        return wrong(member, cat("and \"rope_type\" \"", found->type,
                                 "\": both mean one thing, remove the one that is wrong"));
      found = kind;
    }
    return found;
  }

  Result<Json> value(std::string_view member) const {
    const Json* value = find(member);
    if (value == nullptr) return wrong(member, "a value is needed");
    const auto is_positive = [](const Json& v) { return v.is_number() && v.number(0) > 0; };
    if (member == "truncate") {
      if (value->as<bool>() == nullptr) return wrong(member, "not true or false");
      return *value;
    }
    if (member == "short_factor" || member == "long_factor") {
      const auto* list = value->as<Json::Array>();
      if (list == nullptr || !std::ranges::all_of(*list, is_positive))
        return wrong(member, "a list of positive numbers is needed");
      return plain(*value);
    }
    if (!is_positive(*value)) return wrong(member, "a positive number is needed");
    return plain(*value);
  }

  // The object in one spelling, without rope_theta; null: it says nothing of a type.
  Result<Json> read() const {
    const Kind* found = TEGULA_TRY(kind());
    const Kind& k = found ? *found : kKinds[0];
    for (const std::string_view member :
         {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
          "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
          "short_factor", "long_factor"}) {
      const bool is_its = is_in(k.needed, member) || is_in(k.optional, member) ||
                          (k.has_original && member.starts_with("original"));
      const Json* there = find(member);
      if (there == nullptr || is_its) continue;
      const bool says_nothing = member == "factor" && there->number(0) == 1;
      if (!says_nothing)
        return other(member, found ? cat(" with the rope_type \"", k.type, "\"")
                                   : ", and there is no rope_type that says how");
    }
    if (found == nullptr) return Json();
    Json all = Json::object({{"rope_type", k.type}});
    for (const std::string_view words : {k.needed, k.optional})
      for (std::string_view rest = words; !rest.empty();) {
        const std::string_view member = take_until(' ', rest);
        if (words == k.needed || find(member)) all.set(member, TEGULA_TRY(value(member)));
      }
    if (!k.has_original) return all;
    const char* original = "original_max_position_embeddings";  // absent: the context
    const int64_t beside = config.size(setting::kTrainedContext);
    if (beside > 0)
      all.set(original, beside);
    else if (find(original))
      all.set(original, TEGULA_TRY(value(original)));
    if (k.type == "llama3" &&
        all.find("low_freq_factor")->number(0) >= all.find("high_freq_factor")->number(0))
      return wrong("low_freq_factor", cat("and must be below high_freq_factor ",
                                          all.find("high_freq_factor")->dump()));
    return all;
  }
};

}  // namespace

Status read_rope_scaling(const Json& json, const std::string& path, const ModelDef& model,
                         ModelConfig& config) {
  Json found;
  std::string said_by;
  const bool is_by_layer = has_setting(model, setting::kLocalTheta);
  for (std::string key : {"rope_parameters", "rope_scaling"}) {
    const Json* object = json.find(key);
    if (is_by_layer && object != nullptr && key == "rope_parameters")
      object = object->find("full_attention"), key += ".full_attention";
    if (object == nullptr || object->as<Json::Object>() == nullptr) continue;
    Json here = TEGULA_TRY(Object({path, key, *object, model, config}).read());
    if (here.is_null()) continue;
    if (!found.is_null() && !(found == here))
      return invalid_argument(cat("'", path, "': \"", key, "\" is ", here.dump(), ", and \"",
                                  said_by, "\" ", found.dump(),
                                  ": both mean one thing, remove the one that is wrong"));
    found = std::move(here), said_by = key;
  }
  if (found.is_null() || *found.find("rope_type") == Json("default")) return {};
  config.set(setting::kRopeScaling, found.dump());
  return {};
}

void write_rope_scaling(const ModelConfig& config, Json& json) {
  const std::string text = config.text(setting::kRopeScaling);
  if (!text.empty()) json.set("rope_scaling", *Json::parse(text, "rope_scaling"));
}

}  // namespace tegula
