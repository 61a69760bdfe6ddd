// config.json, read, checked and written by the fields of a family, as data.
#include "tegula/models/common/config_json.h"

#include <algorithm>
#include <cmath>

#include "tegula/models/checkpoint.h"

namespace tegula {

namespace {

constexpr std::pair<DType, std::string_view> kTorchNames[] = {{DType::kF32, "float32"},
                                                              {DType::kBF16, "bfloat16"},
                                                              {DType::kF16, "float16"},
                                                              {DType::kF64, "float64"}};

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t n = std::min(text.find(at), text.size());
    if (n > 0) parts.push_back(text.substr(0, n));
    text.remove_prefix(std::min(n + 1, text.size()));
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
  const auto all = split(choices, '|');
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
  }
  return SettingValue();
}

struct ReadValue {
  SettingValue value;
  bool is_there = false;
};

Result<ReadValue> read_keys(const Json& json, const std::string& path, const Field& f,
                            std::string_view keys) {
  ReadValue read;
  std::string_view first;
  for (const std::string_view key : split(keys, ' ')) {
    const At at{path, key};
    const Setting& s = *f.setting;
    const Json* found = find(json, key);
    SettingValue value = value_of(f.absent, s);
    if (found && !found->is_null())
      value = TEGULA_TRY(value_at(at, s, *found));
    else if (found && s.null_is_zero)
      value = s.type == SettingType::kSize ? SettingValue(int64_t{0}) : SettingValue(0.0);
    else if (s.type != SettingType::kFlag)
      continue;
    const bool is_there = found && (!found->is_null() || s.null_is_zero);
    if (s.type == SettingType::kFlag && !first.empty() && !(value == read.value))
      return at.other(cat(std::get<bool>(value), ", with another \"", first, "\""));
    if (first.empty()) first = key;
    read.value = std::move(value), read.is_there |= is_there;
  }
  return read;
}

Status read_field(const Json& json, const std::string& path, const Field& f, ModelConfig& config) {
  if (f.keys.empty()) return {};
  ReadValue read = TEGULA_TRY(read_keys(json, path, f, f.keys));
  if (!read.is_there && !f.also.empty()) read = TEGULA_TRY(read_keys(json, path, f, f.also));
  if (!read.is_there) {
    if (std::holds_alternative<std::monostate>(f.absent))
      return At{path, split(f.keys, ' ')[0]}.wrong("is missing");
    read.value = value_of(f.absent, *f.setting);
  }
  config.set(*f.setting, std::move(read.value));
  return {};
}

Status check_fixed(const Json& json, const std::string& path, const ModelDef& model) {
  for (const FixedKey& fixed : model.fixed) {
    const Json* value = find(json, fixed.key);
    if (value == nullptr || value->is_null()) continue;
    bool is_known = false;
    for (const std::string_view known : split(fixed.values, '|'))
      is_known |= *Json::parse(known, fixed.key) == *value;
    if (!is_known)
      return At{path, fixed.key}.other(
          cat(value->dump(), "; a ", model.hf_type, " has ", split(fixed.values, '|')[0], " here"));
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
  const std::string name = type && type->as<std::string>() ? *type->as<std::string>() : "";
  std::string known;
  for (const ModelDef* m : all_models()) {
    if (m->hf_type == name) return m;
    append(known, cat(known.empty() ? "" : ", ", m->hf_type));
  }
  return unsupported(
      cat("'", path, "': the model type '", name, "' is not one that tegula builds (", known, ")"));
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
  const auto parts = split(*text, '|');
  return std::vector<std::string>(parts.begin(), parts.end());
}

std::string misfit(const Setting& s, const SettingValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value))
    return *i >= s.least && *i <= s.most ? "" : cat(", must be from ", s.least, " to ", s.most);
  if (const auto* text = std::get_if<std::string>(&value))
    return has_choice(s.choices, *text) ? "" : cat(", must be one of ", s.choices);
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
  const auto* texts = std::get_if<std::vector<std::string>>(&value);
  if (texts == nullptr) return nullptr;
  return Json::Array(texts->begin(), texts->end());
}

Result<ModelConfig> parse_model_config(std::string_view text, const std::string& path) {
  const Json json = TEGULA_TRY(Json::parse(text, path));
  if (json.as<Json::Object>() == nullptr)
    return invalid_argument(cat("'", path, "' is not a JSON object"));
  const ModelDef* model = TEGULA_TRY(model_of(json, path));
  ModelConfig config;
  config.type = model->name;
  for (const Field& f : model->fields) TEGULA_TRY(read_field(json, path, f, config));
  TEGULA_TRY(check_fixed(json, path, *model));
  TEGULA_TRY(check_dtype(json, path));
  if (Status s = config.resolve(); !s.ok()) {
    Error error = std::move(s).error();
    error.message = cat("'", path, "': ", error.message);
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
  for (const std::string_view key : split(f.keys, ' ')) json.set(key, value);
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
    if (config.get(*f.setting) != was.get(*f.setting)) write_field(json, f, config);
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
  for (const FixedKey& fixed : model.fixed)
    if (fixed.is_written) json.set(fixed.key, *Json::parse(split(fixed.values, '|')[0], fixed.key));
  json.set("torch_dtype", torch_name(dtype));
  // Our tokenizers have no special tokens; the library's own defaults may lie outside the
  // vocabulary.
  json.set("bos_token_id", nullptr);
  json.set("eos_token_id", nullptr);
  return json.dump(2) + "\n";
}

}  // namespace tegula
