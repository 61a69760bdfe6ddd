// config.json, read, checked and written by the fields of a family, as data.
#include "tegula/models/common/config_json.h"

#include <algorithm>
#include <cmath>

#include "tegula/base/text.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/common/rope_config.h"
#include "tegula/models/config_keys.h"

namespace tegula {

namespace {

constexpr std::pair<DType, std::string_view> kTorchNames[] = {{DType::kF32, "float32"},
                                                              {DType::kBF16, "bfloat16"},
                                                              {DType::kF16, "float16"},
                                                              {DType::kF64, "float64"}};

std::vector<std::string_view> words_of(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::string_view part = take_until(at, text);
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

// The value at "key" or "key.member"; null: it is not there.
const Json* find(const Json& json, std::string_view key) {
  const size_t dot = key.find('.');
  const Json* at = json.find(key.substr(0, dot));
  return dot == key.npos || at == nullptr ? at : find(*at, key.substr(dot + 1));
}

bool has_choice(std::string_view choices, std::string_view text) {
  const auto all = words_of(choices, '|');
  return std::ranges::find(all, text) != all.end();
}

// A file's key and what it may be: the errors.
struct At {
  const std::string& path;
  std::string_view key;
  Error wrong(std::string_view what) const {
    return invalid_argument(cat("'", path, "': the key \"", key, "\" ", what));
  }
  Error other(std::string_view what) const {
    return unsupported(cat("'", path, "': tegula does not compute \"", key, "\": ", what));
  }
};

Result<SettingValue> texts_of(const At& at, const Setting& s, const Json& json) {
  const auto* list = json.as<Json::Array>();
  if (list == nullptr) return at.wrong(cat("is ", json.dump(), ", not a list of strings"));
  std::vector<std::string> texts;
  for (const Json& each : *list) {
    const auto* text = each.as<std::string>();
    if (text == nullptr) return at.wrong(cat("is ", json.dump(), ", not a list of strings"));
    if (!has_choice(s.choices, *text)) return at.other(cat(*text, "; it knows ", s.choices));
    texts.push_back(*text);
  }
  return SettingValue(std::move(texts));
}

Result<SettingValue> sizes_of(const At& at, const Setting& s, const Json& json) {
  const auto* list = json.as<Json::Array>();
  std::vector<int64_t> sizes;
  for (const Json& each : list ? *list : Json::Array()) {
    const auto* i = each.as<int64_t>();
    if (i != nullptr && *i >= s.least && *i <= s.most) sizes.push_back(*i);
  }
  if (list == nullptr || sizes.size() != list->size())
    return at.wrong(
        cat("is ", json.dump(), ", not a list of sizes from ", s.least, " to ", s.most));
  return SettingValue(std::move(sizes));
}

// A value of config.json as the setting's type, in its range.
Result<SettingValue> value_at(const At& at, const Setting& s, const Json& json) {
  const std::string is = cat("is ", json.dump(), ", not ");
  switch (s.type) {
    case SettingType::kSize: {
      const auto* i = json.as<int64_t>();
      if (i == nullptr || *i < s.least || *i > s.most)
        return at.wrong(cat(is, "a size from ", s.least, " to ", s.most));
      return SettingValue(*i);
    }
    case SettingType::kNumber: {
      if (!json.is_number()) return at.wrong(cat(is, "a number"));
      const SettingValue value = json.number(0);
      if (const std::string wrong = misfit(s, value); !wrong.empty())
        return invalid_argument(cat("'", at.path, "': ", at.key, " is ", json.dump(), wrong));
      return value;
    }
    case SettingType::kFlag:
      if (json.as<bool>() == nullptr) return at.wrong(cat(is, "true or false"));
      return SettingValue(*json.as<bool>());
    case SettingType::kText:
      if (json.as<std::string>() == nullptr) return at.wrong(cat(is, "a string"));
      if (!has_choice(s.choices, *json.as<std::string>()))
        return at.other(cat(*json.as<std::string>(), "; it knows ", s.choices));
      return SettingValue(*json.as<std::string>());
    case SettingType::kTexts:
      return texts_of(at, s, json);
    case SettingType::kSizes:
      return sizes_of(at, s, json);
  }
  return SettingValue();
}

// The value of one key: nothing, where it is not there.
Result<SettingValue> read_key(const At& at, const Setting& s, const Json* found) {
  if (found == nullptr) return SettingValue();
  if (!found->is_null()) return value_at(at, s, *found);
  if (s.null_is_zero)
    return s.type == SettingType::kSize ? SettingValue(int64_t{0}) : SettingValue(0.0);
  if (s.type == SettingType::kFlag) return SettingValue(false);
  const bool is_default =
      s.is_of_training || s.type == SettingType::kTexts || s.type == SettingType::kSizes;
  if (is_default) return SettingValue();
  return at.wrong("is null: give it a value, or leave it out for the default");
}

// The keys of a field are several settings of the file, of which ours is one.
Status read_keys(const Json& json, const std::string& path, const Field& f, SettingValue& value,
                 std::string_view& said) {
  const Setting& s = *f.setting;
  for (const std::string_view key : words_of(f.keys, ' ')) {
    const At at{path, key};
    SettingValue here = TEGULA_TRY(read_key(at, s, find(json, key)));
    const bool is_there = !std::holds_alternative<std::monostate>(here);
    const std::string_view first = words_of(f.keys, ' ')[0];
    if (!s.is_of_training && key != first) {
      const SettingValue now = is_there ? here : value_of(f.absent, s);
      const SettingValue before = said.empty() ? value_of(f.absent, s) : value;
      if (!(now == before))
        return at.other(
            cat(setting_json(now).dump(), ", with another \"", first, "\": it has one for both"));
    }
    if (is_there) value = std::move(here), said = key;
  }
  return {};
}

// Other spellings of the key, which may be there beside it.
Status read_spellings(const Json& json, const std::string& path, const Field& f,
                      SettingValue& value, std::string_view& said) {
  for (const std::string_view key : words_of(f.also, ' ')) {
    const Json* found = find(json, key);
    if (found == nullptr || found->is_null()) continue;
    const At at{path, key};
    SettingValue here = TEGULA_TRY(value_at(at, *f.setting, *found));
    if (!said.empty() && !(here == value))
      return at.wrong(cat("is ", setting_json(here).dump(), ", and \"", said, "\" is ",
                          setting_json(value).dump(),
                          ": both mean one thing, remove the one that is wrong"));
    value = std::move(here), said = key;
  }
  return {};
}

Status read_field(const Json& json, const std::string& path, const Field& f, ModelConfig& config) {
  if (f.keys.empty()) return {};
  SettingValue value;
  std::string_view said;
  TEGULA_TRY(read_keys(json, path, f, value, said));
  TEGULA_TRY(read_spellings(json, path, f, value, said));
  if (said.empty()) {
    if (std::holds_alternative<std::monostate>(f.absent))
      return At{path, words_of(f.keys, ' ')[0]}.wrong("is missing");
    value = value_of(f.absent, *f.setting);
  }
  config.set(*f.setting, std::move(value));
  return {};
}

// 1 and 1.0 are one number.
bool is_equal(const Json& a, const Json& b) {
  return a == b || (a.is_number() && b.is_number() && a.number(0) == b.number(1));
}

Status check_fixed(const Json& json, const std::string& path, const ModelDef& model) {
  for (const auto& list : fixed_keys(model))
    for (const FixedKey& fixed : list) {
      const Json* value = find(json, fixed.key);
      if (value == nullptr) continue;
      const auto known = words_of(fixed.values, '|');
      const auto is_it = [&](std::string_view v) {
        return is_equal(*Json::parse(v, fixed.key), *value);
      };
      if (std::ranges::none_of(known, is_it))
        return At{path, fixed.key}.other(
            cat(value->dump(), "; a ", model.hf_type, " has ", known[0], " here"));
    }
  return {};
}

// transformers 5 writes dtype, and before it torch_dtype.
Status check_dtype(const Json& json, const std::string& path) {
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    const Json* value = json.find(key);
    if (value == nullptr || value->is_null()) continue;
    const auto* name = value->as<std::string>();
    const auto is_it = [&](const auto& known) { return name && known.second == *name; };
    if (name == nullptr) return At{path, key}.wrong(cat("is ", value->dump(), ", not a string"));
    if (std::ranges::none_of(kTorchNames, is_it)) return At{path, key}.other(*name);
  }
  return {};
}

Result<const ModelDef*> model_of(const Json& json, const std::string& path) {
  const Json* type = json.find("model_type");
  if (type && !type->is_null() && !type->as<std::string>())
    return At{path, "model_type"}.wrong(cat("is ", type->dump(), ", not a string"));
  if (type == nullptr || type->is_null()) {
    std::string keys;
    for (const Json::Member& m : *json.as<Json::Object>())
      if (keys.size() < 60) keys += cat(keys.empty() ? "" : ", ", m.key);
    return unsupported(cat("'", path, "' has no \"model_type\", so it is no model's config.json",
                           keys.empty() ? "" : cat("; it has ", keys),
                           ": download or save it again"));
  }
  const std::string& name = *type->as<std::string>();
  std::string known;
  for (const ModelDef* m : all_models()) {
    if (m->hf_type == name) return m;
    append(known, cat(known.empty() ? "" : ", ", m->hf_type));
  }
  return unsupported(
      cat("'", path, "': the model type '", name, "' is not one that tegula builds (", known, ")"));
}

// "; in the file n_heads is num_attention_heads": of the settings that a message names.
std::string keys_of_settings(const ModelDef& model, std::string_view message) {
  std::string keys;
  for (const Field& f : model.fields) {
    const std::string_view name = f.setting->name, key = f.keys.substr(0, f.keys.find(' '));
    if (key.empty() || key == name || message.find(cat(name, " ")) == message.npos) continue;
    keys += cat(keys.empty() ? "; in the file " : ", ", name, " is ", key);
  }
  return keys;
}

}  // namespace

SettingValue value_of(const Field::Default& value, const Setting& setting) {
  if (const auto* i = std::get_if<int64_t>(&value))
    return setting.type == SettingType::kNumber ? SettingValue(static_cast<double>(*i))
                                                : SettingValue(*i);
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  const auto* text = std::get_if<std::string_view>(&value);
  if (text == nullptr) return {};
  if (setting.type == SettingType::kText) return std::string(*text);
  if (setting.type == SettingType::kSizes) return std::vector<int64_t>();  // no family says any
  const auto parts = words_of(*text, '|');
  return std::vector<std::string>(parts.begin(), parts.end());
}

std::string misfit(const Setting& s, const SettingValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value))
    return *i >= s.least && *i <= s.most ? "" : cat(", must be from ", s.least, " to ", s.most);
  if (const auto* text = std::get_if<std::string>(&value))
    return s.choices.empty() || has_choice(s.choices, *text) ? ""
                                                             : cat(", must be one of ", s.choices);
  const auto* d = std::get_if<double>(&value);
  if (d == nullptr) return "";
  const bool fits = std::isfinite(*d) && *d >= 0 && !(s.range == Range::kShare && *d >= 1) &&
                    !(s.range == Range::kPositive && *d == 0);
  if (fits) return "";
  return cat("; it must be ", s.range == Range::kShare         ? "at least 0 and below 1"
                              : s.range == Range::kNotNegative ? "at least 0"
                                                               : "positive, or a division fails");
}

Json setting_json(const SettingValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* texts = std::get_if<std::vector<std::string>>(&value))
    return Json::Array(texts->begin(), texts->end());
  const auto* sizes = std::get_if<std::vector<int64_t>>(&value);
  return sizes == nullptr ? Json(nullptr) : Json(Json::Array(sizes->begin(), sizes->end()));
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& path) {
  const Json json = TEGULA_TRY(Json::parse(text, path));
  if (json.as<Json::Object>() == nullptr)
    return invalid_argument(cat("'", path, "' is not a JSON object"));
  const ModelDef* model = TEGULA_TRY(model_of(json, path));
  ModelConfig config;
  config.type = model->name;
  for (const Field& f : model->fields) TEGULA_TRY(read_field(json, path, f, config));
  if (has_setting(*model, setting::kRopeScaling))
    TEGULA_TRY(read_rope_scaling(json, path, *model, config));
  TEGULA_TRY(check_fixed(json, path, *model));
  TEGULA_TRY(check_config_keys(json, path, *model));
  TEGULA_TRY(check_dtype(json, path));
  if (Status s = config.resolve(); !s.ok()) {
    Error error = std::move(s).error();
    error.message = cat("'", path, "': ", error.message, keys_of_settings(*model, error.message));
    return error;
  }
  return config;
}

Result<ModelConfig> load_model_config(const ModelFiles& files) {
  const auto [path, text] = TEGULA_TRY(files.config());
  return parse_model_config(text, path);
}

namespace {

void write_field(Json& json, const Field& f, const ModelConfig& config) {
  Json value = setting_json(config.get(*f.setting));
  if (f.setting->null_is_zero && value.number(1) == 0) value = nullptr;
  for (const std::string_view key : words_of(f.keys, ' ')) json.set(key, value);
}

Json torch_name(DType dtype) {
  for (const auto& [known, name] : kTorchNames)
    if (known == dtype) return name;
  return nullptr;
}

}  // namespace

Result<std::string> derived_config_json(const ModelConfig& config, DType dtype,
                                        const TextFile& base) {
  const ModelConfig was = TEGULA_TRY(parse_model_config(base.text, base.path));
  Json json = TEGULA_TRY(Json::parse(base.text, base.path));
  const Json before = json;
  for (const Field& f : (*TEGULA_TRY(find_model(config.type))).fields)
    if (config.get(*f.setting) != was.get(*f.setting)) {
      write_field(json, f, config);
      for (const std::string_view key : words_of(f.also, ' '))  // which would contradict
        if (json.find(key) != nullptr) json.set(key, setting_json(config.get(*f.setting)));
    }
  for (const char* key : {"dtype", "torch_dtype"})
    if (const Json* had = json.find(key); had != nullptr && !had->is_null())
      json.set(key, torch_name(dtype));
  return json == before ? base.text : json.dump(2) + "\n";
}

std::string model_config_json(const ModelConfig& config, DType dtype) {
  const auto found = find_model(config.type);
  TEGULA_CHECK(found.ok(), "unknown model ", config.type);
  const ModelDef& model = **found;
  Json json = Json::object({{"model_type", model.hf_type}});
  if (!model.hf_class.empty()) json.set("architectures", Json::Array{model.hf_class});
  for (const Field& f : model.fields) write_field(json, f, config);
  write_rope_scaling(config, json);
  for (const FixedKey& fixed : model.fixed)
    if (fixed.is_written)
      json.set(fixed.key, *Json::parse(words_of(fixed.values, '|')[0], fixed.key));
  json.set("torch_dtype", torch_name(dtype));
  // Our tokenizers have no special tokens; the library's own defaults may lie outside the
  // vocabulary.
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) json.set(key, nullptr);
  return json.dump(2) + "\n";
}

}  // namespace tegula
