// A GGUF's metadata as config.json: one table of settings for all architectures, and what needs
// more than a key.
#include <cmath>
#include <set>

#include "tegula/io/json.h"
#include "tegula/models/common/gguf_architectures.h"
#include "tegula/models/common/gguf_settings.h"
#include "tegula/models/common/names.h"
#include "tegula/models/decoder.h"

namespace tegula {
namespace {

// Keys that change no logits, behind "llama.".
constexpr std::string_view kHarmless = "rope.scaling.finetuned tensor_data_layout";
// Keys of which one value alone is computed.
struct Fixed {
  std::string_view key;
  double value;
  bool is_unset_by_zero = false;
};
constexpr Fixed kFixed[] = {{"attention.causal", 1},
                            {"expert_gating_func", 1, true},
                            {"expert_weights_scale", 1, true},
                            {"expert_group_count", 1, true},
                            {"expert_group_used_count", 1, true},
                            {"expert_shared_count", 1, true},
                            {"leading_dense_block_count", 0},
                            {"nextn_predict_layers", 0},
                            {"moe_every_n_layers", 0},
                            {"rope.scaling.yarn_ext_factor", 1},
                            {"rope.scaling.yarn_attn_factor", 1},
                            {"rope.scaling.yarn_log_multiplier", 0},
                            {"logit_scale", 1, true},
                            {"embedding_scale", 1, true},
                            {"residual_scale", 1, true},
                            {"attention.clamp_kqv", 0},
                            {"attention.max_alibi_bias", 0}};

class Reading {
 public:
  Reading(const GgufFile& file, const GgufArchitecture& a, const ModelDef& model)
      : file_(file), a_(a), model_(model) {}
  Result<Json> read();

 private:
  std::string full(std::string_view key) const { return cat(a_.name, ".", key); }
  const GgufValue* take(std::string_view key) {
    const GgufValue* value = file_.find(full(key));
    if (value != nullptr) used_.insert(full(key));
    return value;
  }
  Error wrong(std::string_view key, std::string_view what) const {
    return invalid_argument(cat("'", file_.path(), "': key ", full(key), ": ", what));
  }
  Error other(std::string_view key, const GgufValue& value) const {
    return unsupported(cat("'", file_.path(), "': tegula does not compute the key ", full(key),
                           ": ", value.shown()));
  }
  bool has(std::string_view setting) const { return find_setting(model_, setting) != nullptr; }
  // The family's first key for the setting.
  void set(std::string_view setting, Json value) {
    const Field* f = find_setting(model_, setting);
    if (f != nullptr) json_.set(f->keys.substr(0, f->keys.find(' ')), std::move(value));
  }
  // None: the key is not there.
  Result<std::optional<double>> number(std::string_view key);
  Result<double> number_or(std::string_view key, double otherwise) {
    return (TEGULA_TRY(number(key))).value_or(otherwise);
  }
  Status read_settings();
  Status read_sizes();
  Status read_from_tensors();
  Status read_rope();
  Status read_scaling(double head_dim);
  Result<Json> factors_of(std::string_view name) const;
  Status check_rest();

  const GgufFile& file_;
  const GgufArchitecture& a_;
  const ModelDef& model_;
  Json json_ = Json::object();
  std::set<std::string> used_;
  double head_dim_ = 0;
};

// Some files have a number for each layer: one for all is read.
Result<std::optional<double>> Reading::number(std::string_view key) {
  const GgufValue* value = take(key);
  if (value == nullptr) return std::optional<double>();
  if (const auto x = value->number()) return x;
  if (const auto b = value->flag()) return std::optional<double>(*b ? 1 : 0);
  std::optional<double> all;
  for (const GgufValue& each : value->elements()) {
    const auto x = each.number();
    if (!x || (all && *all != *x)) return other(key, *value);
    all = x;
  }
  if (!all) return wrong(key, cat("it is ", value->shown(), ", not a number"));
  return all;
}

Json json_number(double x) {
  return x == std::floor(x) && std::abs(x) < 0x1p53 ? Json(static_cast<int64_t>(x)) : Json(x);
}

Status Reading::read_settings() {
  for (const GgufSetting& row : gguf_settings()) {
    const Field* field = find_setting(model_, row.setting);
    if (field == nullptr || !row.is_of(a_)) continue;
    const auto x = TEGULA_TRY(number(row.key));
    if (!x) {
      if (row.is_needed) return wrong(row.key, "it is missing");
      if (!row.absent.empty()) set(row.setting, *Json::parse(row.absent, row.key));
      continue;
    }
    if (field->setting->type == SettingType::kFlag)
      set(row.setting, *x != 0);
    else if (field->setting->null_is_zero && *x == 0)
      set(row.setting, nullptr);
    else if (field->setting->type == SettingType::kNumber)
      set(row.setting, *x);
    else
      set(row.setting, json_number(*x));
  }
  return {};
}

Status Reading::read_sizes() {
  const double width = TEGULA_TRY(number_or("embedding_length", 0));
  const double heads = TEGULA_TRY(number_or("attention.head_count", 0));
  if (heads < 1) return wrong("attention.head_count", "it is missing, or 0");
  if (has("n_kv_heads"))
    set("n_kv_heads", json_number(TEGULA_TRY(number_or("attention.head_count_kv", heads))));
  else if (const double kv = TEGULA_TRY(number_or("attention.head_count_kv", heads)); kv != heads)
    return other("attention.head_count_kv", *take("attention.head_count_kv"));
  head_dim_ = TEGULA_TRY(number_or("attention.key_length", std::floor(width / heads)));
  if (TEGULA_TRY(number_or("attention.value_length", head_dim_)) != head_dim_)
    return other("attention.value_length", *take("attention.value_length"));
  if (has("head_dim"))
    set("head_dim", json_number(head_dim_));
  else if (head_dim_ * heads != width)
    return other("attention.key_length", *take("attention.key_length"));
  const GgufTensor* table = file_.tensor("token_embd.weight");
  if (table == nullptr || table->shape.size() != 2)
    return invalid_argument(cat("'", file_.path(), "': tensor token_embd.weight is missing"));
  const double vocab = TEGULA_TRY(number_or("vocab_size", static_cast<double>(table->shape[0])));
  set("vocab_size", json_number(vocab));
  return {};
}

// Facts that no key says: whether there is a head, and biases.
Status Reading::read_from_tensors() {
  const auto there = [&](std::string_view name) { return file_.tensor(name) != nullptr; };
  set("tie_embeddings", !there("output.weight") || has_head_of_table(file_, a_));
  if (has("has_bias")) set("has_bias", there("blk.0.attn_q.bias") || there("blk.0.attn_qkv.bias"));
  if (has("ffn_bias")) set("ffn_bias", there("blk.0.ffn_up.bias"));
  if (!a_.fixed.empty()) {
    const size_t at = a_.fixed.find('=');
    const bool is_on = a_.fixed.substr(at + 1) == "true";
    set(a_.fixed.substr(0, at), is_on);
    if (const GgufValue* v = take("expert_weights_norm"); v != nullptr && v->flag() != is_on)
      return other("expert_weights_norm", *v);
  }
  // Softmax's scale, as llama.cpp has it: of the largest Gemma another one.
  if (has("query_pre_attn_scalar")) {
    const double layers = TEGULA_TRY(number_or("block_count", 0));
    const bool is_27b = layers == (a_.name == "gemma2" ? 46 : 62);
    const double by_width = TEGULA_TRY(number_or("embedding_length", 0)) /
                            TEGULA_TRY(number_or("attention.head_count", 1));
    set("query_pre_attn_scalar", json_number(is_27b ? by_width : head_dim_));
  }
  return {};
}

Result<Json> Reading::factors_of(std::string_view name) const {
  const GgufTensor* t = file_.tensor(name);
  if (t == nullptr) return Json();
  if (t->bytes.dtype != DType::kF32 || t->shape.size() != 1)
    return invalid_argument(cat("'", file_.path(), "': tensor ", name, " is no list of f32"));
  Json::Array list;
  for (int64_t i = 0; i < t->shape[0]; ++i)
    list.push_back(json_number(shortest_double(t->bytes.as<float>()[i])));
  return list;
}

Status Reading::read_rope() {
  const bool turns = has("rope_theta");
  const auto dims = TEGULA_TRY(number("rope.dimension_count"));
  if (turns && has("partial_rotary_factor") && dims && *dims != head_dim_) {
    double share = *dims / head_dim_;  // rounded such that it gives the number back
    if (std::floor(head_dim_ * share) != *dims) share = std::nextafter(share, 2);
    set("partial_rotary_factor", share);
  } else if (turns && has("partial_rotary_factor")) {
    set("partial_rotary_factor", 1);
  } else if (turns && dims && *dims != head_dim_) {
    return other("rope.dimension_count", *take("rope.dimension_count"));
  }
  if (turns) return read_scaling(head_dim_);
  return {};
}

Status Reading::read_scaling(double head_dim) {
  const GgufValue* said = take("rope.scaling.type");
  const std::string type(said && said->text() ? *said->text() : "");
  const double legacy = TEGULA_TRY(number_or("rope.scale_linear", 0));
  const double factor = TEGULA_TRY(number_or("rope.scaling.factor", legacy));
  const double original = TEGULA_TRY(number_or("rope.scaling.original_context_length", 0));
  const auto attention = TEGULA_TRY(number("rope.scaling.attn_factor"));
  const double fast = TEGULA_TRY(number_or("rope.scaling.yarn_beta_fast", 0));
  const double slow = TEGULA_TRY(number_or("rope.scaling.yarn_beta_slow", 0));
  const Json freqs = TEGULA_TRY(factors_of("rope_freqs.weight"));
  const Json longs = TEGULA_TRY(factors_of("rope_factors_long.weight"));
  const Json shorts = TEGULA_TRY(factors_of("rope_factors_short.weight"));
  Json scaling = Json::object();
  if (original > 0) set("original_max_position_embeddings", json_number(original));
  const bool is_linear = (type.empty() || type == "linear") && factor != 0 && factor != 1;
  if (!longs.is_null() && !shorts.is_null()) {
    if (is_linear || type == "yarn")
      return other("rope.scaling.type", said ? *said : *take("rope.scaling.factor"));
    scaling = Json::object({{"rope_type", "longrope"},
                            {"short_factor", shorts},
                            {"long_factor", longs},
                            {"attention_factor", json_number(attention.value_or(1))}});
    if (original > 0) scaling.set("original_max_position_embeddings", json_number(original));
  } else if (!freqs.is_null()) {
    if (is_linear || type == "yarn")
      return other("rope.scaling.type", said ? *said : *take("rope.scaling.factor"));
    scaling = scaling_of_divisors(freqs, TEGULA_TRY(number_or("rope.freq_base", 1e4)), head_dim);
  } else if (is_linear) {
    scaling = Json::object({{"rope_type", "linear"}, {"factor", json_number(factor)}});
  } else if (type == "yarn") {
    scaling = Json::object({{"rope_type", "yarn"}, {"factor", json_number(factor)}});
    if (original > 0) scaling.set("original_max_position_embeddings", json_number(original));
    if (fast > 0) scaling.set("beta_fast", json_number(fast));
    if (slow > 0) scaling.set("beta_slow", json_number(slow));
    if (attention && *attention != 1)
      scaling.set("attention_factor", *attention * (0.1 * std::log(factor) + 1));
  } else if (!type.empty() && type != "none" && type != "linear" && type != "longrope") {
    return other("rope.scaling.type", *said);
  }
  const bool has_more = attention.value_or(1) != 1 && longs.is_null() && type != "yarn";
  if (has_more) return other("rope.scaling.attn_factor", *take("rope.scaling.attn_factor"));
  if (!scaling.as<Json::Object>()->empty()) json_.set("rope_scaling", std::move(scaling));
  return {};
}

Status Reading::check_rest() {
  for (const Fixed& f : kFixed) {
    const auto x = TEGULA_TRY(number(f.key));
    if (x && *x != f.value && !(f.is_unset_by_zero && *x == 0)) return other(f.key, *take(f.key));
  }
  const std::string prefix = full("");
  for (const GgufKey& k : file_.keys()) {
    if (!k.name.starts_with(prefix) || used_.contains(std::string(k.name))) continue;
    const std::string_view key = k.name.substr(prefix.size());
    if (!any_word(kHarmless, [&](std::string_view w) { return w == key; }))
      return other(key, k.value);
  }
  return {};
}

Result<Json> Reading::read() {
  json_ = Json::object({{"model_type", model_.hf_type}});
  if (!model_.hf_class.empty()) json_.set("architectures", Json::Array{model_.hf_class});
  TEGULA_TRY(read_settings());
  TEGULA_TRY(read_sizes());
  TEGULA_TRY(read_from_tensors());
  TEGULA_TRY(read_rope());
  TEGULA_TRY(check_rest());
  return std::move(json_);
}

}  // namespace

Result<std::string> gguf_config_json(const GgufFile& file, const GgufArchitecture& a) {
  for (const ModelDef* model : all_models())
    if (model->hf_type == a.model_type) {
      const Json json = TEGULA_TRY(Reading(file, a, *model).read());
      return json.dump(2) + "\n";
    }
  return internal_error(cat("no model of the type ", a.model_type));
}

}  // namespace tegula
