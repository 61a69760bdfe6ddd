#include "tegula/models/common/gguf_metadata.h"

#include <cmath>

#include "tegula/io/json.h"
#include "tegula/models/common/gguf_settings.h"
#include "tegula/models/common/names.h"
#include "tegula/models/decoder.h"

namespace tegula {
namespace {

// Settings that others say, or that say nothing of logits.
constexpr std::string_view kDerived =
    "max_window_layers no_rope_layer_interval sliding_window_pattern dense_ff dropout rope_scaling "
    "original_max_position_embeddings";

class Writing {
 public:
  Writing(const ModelConfig& config, const ModelDef& model, const GgufArchitecture& a)
      : config_(config), model_(model), a_(a) {}
  Result<GgufMetadata> write(std::vector<std::string>& notes);

 private:
  bool has(std::string_view setting) const { return find_setting(model_, setting) != nullptr; }
  void put(std::string_view key, GgufOutKey::Value value) {
    all_.keys.push_back({cat(a_.name, ".", key), std::move(value)});
  }
  void put_size(std::string_view key, int64_t n) { put(key, static_cast<uint32_t>(n)); }
  void put_settings();
  Status put_scaling();
  const ModelConfig& config_;
  const ModelDef& model_;
  const GgufArchitecture& a_;
  GgufMetadata all_;
};

void Writing::put_settings() {
  for (const GgufSetting& row : gguf_settings()) {
    const Field* field = find_setting(model_, row.setting);
    if (field == nullptr || !row.is_of(a_) || row.setting == "sliding_window_pattern") continue;
    const SettingValue value = config_.get(*field->setting);
    if (const auto* n = std::get_if<int64_t>(&value)) {
      if (*n != 0 || !field->setting->null_is_zero || row.is_needed) put_size(row.key, *n);
    } else if (const auto* x = std::get_if<double>(&value)) {
      if (*x != 0 || !field->setting->null_is_zero) put(row.key, static_cast<float>(*x));
    } else if (const auto* b = std::get_if<bool>(&value)) {
      put(row.key, *b);
    }
  }
}

std::vector<float> floats_of(const Json* list) {
  std::vector<float> all;
  if (const auto* array = list ? list->as<Json::Array>() : nullptr)
    for (const Json& x : *array) all.push_back(static_cast<float>(x.number(1)));
  return all;
}

Status Writing::put_scaling() {
  const std::string text = config_.text(setting::kRopeScaling);
  const int64_t trained = config_.size(setting::kTrainedContext);
  const Json json = text.empty() ? Json::object() : TEGULA_TRY(Json::parse(text, "rope_scaling"));
  const auto number = [&](std::string_view key) {
    const Json* v = json.find(key);
    return v ? static_cast<float>(v->number(0)) : 0.0F;
  };
  const Json* type = json.find("rope_type");
  const Json* said = json.find("original_max_position_embeddings");
  const int64_t original = said != nullptr ? static_cast<int64_t>(said->number(0))
                           : trained > 0   ? trained
                                           : config_.max_seqlen;
  const bool has_original = type != nullptr && (*type == Json("yarn") || *type == Json("longrope"));
  if (has_original || trained > 0) put_size("rope.scaling.original_context_length", original);
  if (type == nullptr || *type == Json("dynamic")) return {};
  if (*type == Json("linear")) {
    put("rope.scaling.type", std::string("linear"));
    put("rope.scaling.factor", number("factor"));
  } else if (*type == Json("yarn")) {
    put("rope.scaling.type", std::string("yarn"));
    const float factor = number("factor") > 0 ? number("factor")
                                              : static_cast<float>(config_.max_seqlen) /
                                                    static_cast<float>(original);
    put("rope.scaling.factor", factor);
    if (number("beta_fast") > 0) put("rope.scaling.yarn_beta_fast", number("beta_fast"));
    if (number("beta_slow") > 0) put("rope.scaling.yarn_beta_slow", number("beta_slow"));
    const double by = 0.1 * std::log(static_cast<double>(factor)) + 1;
    const double scale = rotary_of(config_, config_.max_seqlen).scale;
    if (std::abs(scale - by) > 1e-6)
      put("rope.scaling.attn_factor", static_cast<float>(scale / by));
  } else if (*type == Json("llama3")) {
    std::vector<float> divisors;
    for (const double d : rotary_of(config_, 1).divisors) divisors.push_back(static_cast<float>(d));
    all_.tensors.push_back({"rope_freqs.weight", std::move(divisors)});
  } else if (*type == Json("longrope")) {
    if (a_.name != "phi3") put("rope.scaling.type", std::string("longrope"));  // it has no other
    put("rope.scaling.attn_factor",
        static_cast<float>(rotary_of(config_, config_.max_seqlen).scale));
    all_.tensors.push_back({"rope_factors_long.weight", floats_of(json.find("long_factor"))});
    all_.tensors.push_back({"rope_factors_short.weight", floats_of(json.find("short_factor"))});
  } else {
    return unsupported(cat("rope_scaling ", text, " has no form in GGUF"));
  }
  return {};
}

Result<GgufMetadata> Writing::write(std::vector<std::string>& notes) {
  all_.keys.push_back({"general.architecture", std::string(a_.name)});
  all_.keys.push_back({"general.type", std::string("model")});
  put_settings();
  put_size("attention.head_count_kv", config_.n_kv_heads);
  put_size("attention.key_length", config_.head_dim);
  put_size("attention.value_length", config_.head_dim);
  put_size("vocab_size", config_.vocab_size);
  if (has("rope_theta")) {
    const double share = has("partial_rotary_factor") ? config_.number(setting::kRotaryShare) : 1.0;
    const auto dims = static_cast<int64_t>(static_cast<double>(config_.head_dim) * share);
    if (dims % 2 != 0)
      return unsupported(cat(dims, " of a head's ", config_.head_dim,
                             " elements are turned: GGUF has pairs alone"));
    put_size("rope.dimension_count", dims);
    TEGULA_TRY(put_scaling());
  }
  if (const Field* f = find_setting(model_, a_.unread);
      f != nullptr && config_.size(*f->setting) > 0)
    notes.push_back(cat("llama.cpp does not read ", f->setting->name, " of this architecture: its ",
                        "texts differ once they have more than ", config_.size(*f->setting),
                        " tokens"));
  return std::move(all_);
}

// Another family may not have the setting: that is 0, or false.
bool is_none(const SettingValue& v) {
  return v == SettingValue() || v == SettingValue(int64_t{0}) || v == SettingValue(0.0) ||
         v == SettingValue(false);
}

bool is_same(const SettingValue& a, const SettingValue& b) {
  if (is_none(a) && is_none(b)) return true;
  const auto *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  if (x != nullptr && y != nullptr) return static_cast<float>(*x) == static_cast<float>(*y);
  return a == b;
}

// As what is computed in f32.
bool is_same(const Rotary& a, const Rotary& b) {
  const auto alike = [](double x, double y) { return std::abs(x - y) <= 1e-6 * std::abs(x); };
  const auto at = [](const Rotary& r, size_t i) {
    return i < r.divisors.size() ? r.divisors[i] : 1;
  };
  if (a.dims != b.dims || !alike(a.theta, b.theta) || !alike(a.scale, b.scale)) return false;
  for (size_t i = 0; i < std::max(a.divisors.size(), b.divisors.size()); ++i)
    if (!alike(at(a, i), at(b, i))) return false;
  return true;
}

}  // namespace

Result<GgufMetadata> gguf_metadata(const ModelConfig& config, const GgufArchitecture& a,
                                   std::vector<std::string>& notes) {
  return Writing(config, *TEGULA_TRY(find_model(config.type)), a).write(notes);
}

Status check_gguf_config(const ModelConfig& written, const ModelConfig& read,
                         const GgufArchitecture& a) {
  const ModelDef* model = TEGULA_TRY(find_model(written.type));
  for (const Field& f : model->fields) {
    const Setting& s = *f.setting;
    const bool is_derived = any_word(kDerived, [&](std::string_view w) { return w == s.name; });
    if (s.is_of_training || is_derived || f.keys.empty()) continue;
    const SettingValue was = written.get(s), is = read.get(s);
    if (!is_same(was, is))
      return unsupported(cat("a GGUF file of the architecture ", a.name, " cannot say \"",
                             f.keys.substr(0, f.keys.find(' ')), "\": ", setting_json(was).dump(),
                             "; who reads it takes ", setting_json(is).dump()));
  }
  for (const int64_t longest : {int64_t{1}, written.max_seqlen})
    if (has_setting(*model, setting::kRopeTheta) &&
        !is_same(rotary_of(written, longest), rotary_of(read, longest)))
      return unsupported(
          cat("a GGUF file of the architecture ", a.name,
              " cannot say \"rope_scaling\": ", written.text(setting::kRopeScaling)));
  return {};
}

}  // namespace tegula
