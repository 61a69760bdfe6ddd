#include "tegula/io/hf_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "tegula/io/file.h"

namespace tegula {
namespace {

constexpr int64_t kRequired = -1;
// No size of a model is larger; two of them can be multiplied without overflow.
constexpr int64_t kMostSize = int64_t{1} << 30;

// How a family of configs names our fields, and what an absent key means.
struct SizeKey {
  const char* key;
  int64_t HfConfig::*field;
  int64_t otherwise;  // kRequired, or a default; 0 where it follows from other fields
};
struct NumberKey {
  const char* key;
  double HfConfig::*field;
  double otherwise;
};
struct Family {
  const char* model_type;
  const char* architecture;  // empty: transformers has none
  std::vector<SizeKey> sizes;
  std::vector<NumberKey> numbers;
  const char* activation_key;
  const char* activation;
  bool tie_embeddings;
  std::vector<const char*> bias_keys;
  bool bias;
  // Keys that must be absent or have this value, because Tegula computes only that.
  std::vector<Json::Member> fixed;
};

const std::vector<Family>& families() {
  static const std::vector<SizeKey> kLlamaSizes = {
      {"vocab_size", &HfConfig::vocab_size, kRequired},
      {"hidden_size", &HfConfig::d_model, kRequired},
      {"intermediate_size", &HfConfig::d_ff, kRequired},
      {"num_hidden_layers", &HfConfig::n_layers, kRequired},
      {"num_attention_heads", &HfConfig::n_heads, kRequired},
      {"num_key_value_heads", &HfConfig::n_kv_heads, 0},
      {"head_dim", &HfConfig::head_dim, 0},
      {"max_position_embeddings", &HfConfig::max_seqlen, 2048}};
  static const std::vector<SizeKey> kLstmSizes = {
      {"vocab_size", &HfConfig::vocab_size, kRequired},
      {"hidden_size", &HfConfig::d_model, kRequired},
      {"num_hidden_layers", &HfConfig::n_layers, kRequired},
      {"max_position_embeddings", &HfConfig::max_seqlen, kRequired}};
  static const auto kMlpSizes = [] {
    std::vector<SizeKey> sizes = kLstmSizes;
    sizes.push_back({"intermediate_size", &HfConfig::d_ff, 0});
    return sizes;
  }();
  static const auto kMixtralSizes = [] {
    std::vector<SizeKey> sizes = kLlamaSizes;
    sizes.back().otherwise = 131072;
    sizes.push_back({"num_local_experts", &HfConfig::n_experts, 8});
    sizes.push_back({"num_experts_per_tok", &HfConfig::n_experts_per_token, 2});
    return sizes;
  }();
  static const std::vector<Family> kFamilies = {
      {"gpt2",
       "GPT2LMHeadModel",
       {{"vocab_size", &HfConfig::vocab_size, 50257},
        {"n_positions", &HfConfig::max_seqlen, 1024},
        {"n_embd", &HfConfig::d_model, 768},
        {"n_layer", &HfConfig::n_layers, 12},
        {"n_head", &HfConfig::n_heads, 12},
        {"n_inner", &HfConfig::d_ff, 0}},
       {{"layer_norm_epsilon", &HfConfig::norm_eps, 1e-5},
        {"resid_pdrop", &HfConfig::dropout, 0.1},
        {"embd_pdrop", &HfConfig::dropout, 0.1},
        {"attn_pdrop", &HfConfig::dropout, 0.1}},
       "activation_function",
       "gelu_new",
       true,
       {"bias"},
       true,
       {{"scale_attn_weights", true},
        {"scale_attn_by_inverse_layer_idx", false},
        {"add_cross_attention", false}}},
      {"llama",
       "LlamaForCausalLM",
       kLlamaSizes,
       {{"rms_norm_eps", &HfConfig::norm_eps, 1e-6}, {"attention_dropout", &HfConfig::dropout, 0}},
       "hidden_act",
       "silu",
       false,
       {"attention_bias", "mlp_bias"},
       false,
       {{"rope_scaling", nullptr}}},
      {"mixtral",
       "MixtralForCausalLM",
       kMixtralSizes,
       {{"rms_norm_eps", &HfConfig::norm_eps, 1e-5},
        {"attention_dropout", &HfConfig::dropout, 0},
        {"router_aux_loss_coef", &HfConfig::balance_loss, 0.001}},
       "hidden_act",
       "silu",
       false,
       {},
       false,
       {{"rope_scaling", nullptr}, {"sliding_window", nullptr}}},
      {"tegula-mlp",
       "",
       kMlpSizes,
       {{"norm_eps", &HfConfig::norm_eps, 1e-5}, {"dropout", &HfConfig::dropout, 0}},
       "hidden_act",
       "gelu_new",
       false,
       {"bias"},
       true,
       {}},
      {"tegula-lstm",
       "",
       kLstmSizes,
       {{"norm_eps", &HfConfig::norm_eps, 1e-5}, {"dropout", &HfConfig::dropout, 0}},
       "hidden_act",
       "tanh",
       false,
       {"bias"},
       true,
       {}},
  };
  return kFamilies;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& f : families())
    if (f.model_type == model_type) return &f;
  return nullptr;
}

bool has_heads(const Family& f) { return *f.architecture != '\0'; }
bool has_rope(const Family& f) {
  return std::string_view(f.activation_key) == "hidden_act" && has_heads(f);
}

constexpr std::pair<DType, std::string_view> kTorchNames[] = {{DType::kF32, "float32"},
                                                              {DType::kBF16, "bfloat16"},
                                                              {DType::kF16, "float16"},
                                                              {DType::kF64, "float64"}};

// The members of a config, taken out one by one; what stays is `extra`.
class Reader {
 public:
  Reader(Json::Object members, const std::string& path)
      : members_(std::move(members)), path_(path) {}

  // The value, if the key is there and not null.
  std::optional<Json> take(std::string_view key) {
    const auto at = std::find_if(members_.begin(), members_.end(),
                                 [&](const Json::Member& m) { return m.key == key; });
    if (at == members_.end()) return std::nullopt;
    std::optional<Json> value = std::move(at->value);
    members_.erase(at);
    if (value->is_null()) value.reset();
    return value;
  }
  Result<int64_t> size(std::string_view key, int64_t otherwise) {
    const auto value = take(key);
    if (!value && otherwise != kRequired) return otherwise;
    if (!value) return wrong(key, "is missing");
    const auto* i = value->as<int64_t>();
    if (i == nullptr || *i < 0 || *i > kMostSize)
      return wrong(key, cat("is ", value->dump(), ", not a size from 0 to ", kMostSize));
    return *i;
  }
  Result<double> number(std::string_view key, double otherwise) {
    const auto value = take(key);
    if (!value) return otherwise;
    if (!value->is_number()) return wrong(key, cat("is ", value->dump(), ", not a number"));
    return value->number(0);
  }
  Result<bool> boolean(std::string_view key, bool otherwise) {
    const auto value = take(key);
    if (!value) return otherwise;
    if (value->as<bool>() == nullptr)
      return wrong(key, cat("is ", value->dump(), ", not true or false"));
    return *value->as<bool>();
  }
  Result<std::string> text(std::string_view key, std::string_view otherwise) {
    const auto value = take(key);
    if (!value) return std::string(otherwise);
    if (value->as<std::string>() == nullptr)
      return wrong(key, cat("is ", value->dump(), ", not a string"));
    return *value->as<std::string>();
  }
  Error wrong(std::string_view key, std::string_view what) const {
    return invalid_argument(cat("'", path_, "': the key \"", key, "\" ", what));
  }
  Error other(std::string_view key, std::string_view value) const {
    return unsupported(cat("'", path_, "': tegula does not compute \"", key, "\": ", value));
  }
  Json::Object rest() { return std::move(members_); }

 private:
  Json::Object members_;
  const std::string& path_;
};

// RoPE's base stands at the top or, since transformers 5, in rope_parameters.
Status read_rope(Reader& in, HfConfig& config) {
  config.rope_theta = config.model_type == "mixtral" ? 1e6 : 1e4;
  if (const auto parameters = in.take("rope_parameters")) {
    const Json* type = parameters->find("rope_type");
    const auto* name = type != nullptr ? type->as<std::string>() : nullptr;
    if (name != nullptr && *name != "default") return in.other("rope_type", *name);
    if (const Json* theta = parameters->find("rope_theta")) config.rope_theta = theta->number(0);
  }
  config.rope_theta = TEGULA_TRY(in.number("rope_theta", config.rope_theta));
  return {};
}

// What an absent or null key means where other fields decide it.
void fill_in(const Family& family, HfConfig& c) {
  if (c.d_ff == 0) c.d_ff = 4 * c.d_model;
  if (!has_heads(family)) return;
  if (c.n_kv_heads == 0) c.n_kv_heads = c.n_heads;
  if (c.head_dim == 0 && c.n_heads > 0) c.head_dim = c.d_model / c.n_heads;
}

Status read_bias(Reader& in, const Family& family, HfConfig& config) {
  config.bias = family.bias;
  for (size_t i = 0; i < family.bias_keys.size(); ++i) {
    const bool bias = TEGULA_TRY(in.boolean(family.bias_keys[i], family.bias));
    if (i > 0 && bias != config.bias)
      return in.other(family.bias_keys[i],
                      cat(bias, ", with another \"", family.bias_keys[0], "\""));
    config.bias = bias;
  }
  return {};
}

Status read_dtype(Reader& in, HfConfig& config) {
  std::string name = TEGULA_TRY(in.text("torch_dtype", "float32"));
  name = TEGULA_TRY(in.text("dtype", name));
  for (const auto& [dtype, torch_name] : kTorchNames)
    if (name == torch_name) {
      config.dtype = dtype;
      return {};
    }
  return in.other("dtype", name);
}

}  // namespace

Result<HfConfig> parse_hf_config(std::string_view text, const std::string& path) {
  Json json = TEGULA_TRY(Json::parse(text, path));
  if (json.as<Json::Object>() == nullptr)
    return invalid_argument(cat("'", path, "' is not a JSON object"));
  Reader in(std::move(*json.as<Json::Object>()), path);
  HfConfig config;
  config.model_type = TEGULA_TRY(in.text("model_type", ""));
  const Family* family = find_family(config.model_type);
  if (family == nullptr) {
    std::string known;
    for (const Family& f : families()) append(known, cat(known.empty() ? "" : ", ", f.model_type));
    return unsupported(cat("'", path, "': the model type '", config.model_type,
                           "' is not one that tegula builds (", known, ")"));
  }
  for (const SizeKey& k : family->sizes) {
    const int64_t size = TEGULA_TRY(in.size(k.key, k.otherwise));
    config.*k.field = size;
  }
  for (const NumberKey& k : family->numbers) {
    const double number = TEGULA_TRY(in.number(k.key, k.otherwise));
    config.*k.field = number;
  }
  config.activation = TEGULA_TRY(in.text(family->activation_key, family->activation));
  config.tie_embeddings = TEGULA_TRY(in.boolean("tie_word_embeddings", family->tie_embeddings));
  TEGULA_TRY(read_bias(in, *family, config));
  TEGULA_TRY(read_dtype(in, config));
  if (has_rope(*family)) TEGULA_TRY(read_rope(in, config));
  for (const Json::Member& m : family->fixed)
    if (const auto value = in.take(m.key); value && !(*value == m.value))
      return in.other(m.key, value->dump());
  for (const char* key : {"architectures", "transformers_version"}) (void)in.take(key);
  config.extra = in.rest();
  std::erase_if(config.extra, [](const Json::Member& m) {
    return m.value.is_null() && (m.key == "bos_token_id" || m.key == "eos_token_id");
  });
  fill_in(*family, config);
  if (Status s = check_hf_config(config); !s.ok()) {
    Error error = std::move(s).error();
    error.message = cat("'", path, "': ", error.message);
    return error;
  }
  return config;
}

Result<HfConfig> read_hf_config(const std::string& directory) {
  const std::string path = join_path(directory, "config.json");
  const std::string text = TEGULA_TRY(read_file(path));
  return parse_hf_config(text, path);
}

std::string format_hf_config(const HfConfig& config) {
  const Family* family = find_family(config.model_type);
  TEGULA_CHECK(family != nullptr, "unknown model type ", config.model_type);
  Json json = Json::object({{"model_type", config.model_type}});
  if (*family->architecture != '\0') json.set("architectures", Json::Array{family->architecture});
  for (const SizeKey& k : family->sizes) json.set(k.key, config.*k.field);
  for (const NumberKey& k : family->numbers) json.set(k.key, config.*k.field);
  json.set(family->activation_key, config.activation);
  json.set("tie_word_embeddings", config.tie_embeddings);
  for (const char* key : family->bias_keys) json.set(key, config.bias);
  if (has_rope(*family)) json.set("rope_theta", config.rope_theta);
  for (const auto& [dtype, name] : kTorchNames)
    if (dtype == config.dtype) json.set("torch_dtype", name);
  // Our tokenizers have no special tokens; the library's own defaults may lie outside the
  // vocabulary.
  json.set("bos_token_id", nullptr);
  json.set("eos_token_id", nullptr);
  for (const Json::Member& m : config.extra) json.set(m.key, m.value);
  return json.dump(2) + "\n";
}

Status check_hf_config(const HfConfig& c) {
  const Family* family = find_family(c.model_type);
  if (family == nullptr) return unsupported(cat("unknown model type '", c.model_type, "'"));
  for (const SizeKey& k : family->sizes)
    if (c.*k.field <= 0)
      return invalid_argument(cat("the size ", k.key, " is ", c.*k.field, "; it must be positive"));
  for (const NumberKey& k : family->numbers) {
    const double v = c.*k.field;
    const bool is_share = k.field == &HfConfig::dropout,
               is_weight = k.field == &HfConfig::balance_loss;
    if (!std::isfinite(v) || v < 0 || (is_share && v >= 1) || (v == 0 && !is_share && !is_weight))
      return invalid_argument(cat(k.key, " is ", v, "; it must be ",
                                  is_share    ? "at least 0 and below 1"
                                  : is_weight ? "at least 0"
                                              : "positive, or a division fails"));
  }
  if (has_rope(*family) && !(std::isfinite(c.rope_theta) && c.rope_theta > 0))
    return invalid_argument(cat("rope_theta is ", c.rope_theta, "; it must be positive"));
  if (!has_heads(*family)) return {};
  if (c.model_type == "gpt2" && (c.n_heads * c.head_dim != c.d_model || c.n_kv_heads != c.n_heads))
    return invalid_argument(
        cat("gpt2 needs d_model = n_heads × head_dim and n_kv_heads = n_heads; ",
            "here d_model is ", c.d_model, ", n_heads ", c.n_heads, ", head_dim ", c.head_dim,
            ", n_kv_heads ", c.n_kv_heads));
  if (c.n_heads % c.n_kv_heads != 0)
    return invalid_argument(
        cat("n_heads ", c.n_heads, " is not a multiple of n_kv_heads ", c.n_kv_heads));
  if (has_rope(*family) && c.head_dim % 2 != 0)
    return invalid_argument(cat("RoPE needs an even head_dim; it is ", c.head_dim));
  if (c.n_experts_per_token > c.n_experts)
    return invalid_argument(cat(c.n_experts_per_token, " experts per token of only ", c.n_experts));
  return {};
}

}  // namespace tegula
