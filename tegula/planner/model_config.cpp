#include "tegula/planner/model_config.h"

#include <sys/stat.h>

#include <algorithm>

#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/decoder.h"
#include "tegula/models/published.h"

namespace tegula::planner {

namespace {

// Keys that change the mathematics of a model but neither its sizes nor its FLOPs. A reader of
// weights must refuse what it does not compute; a price need not.
constexpr std::string_view kFree[] = {"rope_scaling",      "rope_parameters",     "hidden_act",
                                      "hidden_activation", "activation_function", "dtype",
                                      "torch_dtype"};

Json without_free_keys(const Json& json) {
  const auto* members = json.as<Json::Object>();
  if (members == nullptr) return json;
  // Our own decoder's activation says whether there is a gate.
  const Json* type = json.find("model_type");
  const auto* name = type ? type->as<std::string>() : nullptr;
  if (name != nullptr && name->starts_with("tegula-")) return json;
  Json::Object kept;
  for (const Json::Member& m : *members)
    if (std::ranges::find(kFree, m.key) == std::end(kFree)) kept.push_back(m);
  return kept;
}

SettingValue own(const ModelConfig& c, std::string_view name) {
  for (const auto& [key, value] : c.own)
    if (key == name) return value;
  return {};
}

std::string own_text(const ModelConfig& c, std::string_view name) {
  const SettingValue value = own(c, name);
  const auto* text = std::get_if<std::string>(&value);
  return text ? *text : "";
}

void set_windows(const ModelConfig& c, ModelSpec& m) {
  m.window = c.size(setting::kWindow);
  if (c.type == "mistral") m.n_window_layers = m.window > 0 ? m.n_layers : 0;
  if (c.type == "qwen2" || c.type == "gemma2")
    for (int64_t layer = 0; layer < m.n_layers; ++layer)
      m.n_window_layers += window_by_type(c, layer) > 0;
  if (m.n_window_layers == 0) m.window = 0;
}

std::string path_of_config(const std::string& name) {
  struct stat info {};
  if (stat(name.c_str(), &info) != 0) return "";
  return S_ISDIR(info.st_mode) ? name + "/config.json" : name;
}

// A mistyped preset has no such marks of a path.
bool looks_like_path(const std::string& name) {
  return name.find('/') != name.npos || name.ends_with(".json");
}

}  // namespace

ModelSpec model_spec(const ModelConfig& c, const std::string& name) {
  ModelSpec m;
  m.name = name, m.family = c.type;
  m.kind = c.type == "lstm"  ? ModelKind::kLstm
           : c.type == "mlp" ? ModelKind::kMlp
                             : ModelKind::kDecoder;
  m.n_layers = c.n_layers, m.d_model = c.d_model, m.vocab_size = c.vocab_size;
  m.max_seqlen = c.max_seqlen;
  m.is_tied = c.type == "mlp" || c.is_tied();
  m.d_ff = m.kind == ModelKind::kLstm ? 0 : c.d_ff;
  m.has_final_norm = m.kind == ModelKind::kDecoder;
  if (m.kind != ModelKind::kDecoder) return m;
  m.n_heads = c.n_heads, m.n_kv_heads = c.n_kv_heads, m.head_dim = c.head_dim;
  m.has_qkv_bias = c.has_bias || c.type == "qwen2";
  m.has_bias = c.has_bias;
  m.has_dropout = c.dropout > 0;
  if (c.type == "gpt2") {
    m.n_positions = c.max_seqlen, m.has_norm_bias = c.has_bias;
  } else if (c.type == "decoder") {
    m.has_norm_bias = c.has_bias;
    m.n_ff_matrices = own_text(c, "activation") == "swiglu" ? 3 : 2;
    m.n_positions = own_text(c, "positions") == "learned" ? c.max_seqlen : 0;
    m.has_final_norm = own_text(c, "norm") != "post";
  } else {
    m.n_ff_matrices = 3;
  }
  if (c.type == "moe") m.n_experts = c.n_experts, m.n_experts_per_token = c.n_experts_per_token;
  if (c.type == "gemma2") m.norms_per_layer = 4;
  set_windows(c, m);
  return m;
}

Result<ModelConfig> model_config(const ModelSpec& m) {
  if (m.family.empty())
    return unsupported(cat(m.name, " is counted and priced, but no family of tegula builds it"));
  ModelConfig c;
  c.type = m.family;
  c.vocab_size = m.vocab_size, c.n_layers = m.n_layers, c.d_model = m.d_model;
  c.max_seqlen = m.max_seqlen;
  if (m.kind != ModelKind::kMlp) c.tie_embeddings = m.is_tied;
  if (m.kind != ModelKind::kLstm) c.d_ff = m.d_ff;
  if (m.kind == ModelKind::kDecoder) {
    c.n_heads = m.n_heads, c.n_kv_heads = m.n_kv_heads, c.head_dim = m.head_dim;
    c.has_bias = m.has_bias;
    if (m.is_moe()) c.n_experts = m.n_experts, c.n_experts_per_token = m.n_experts_per_token;
    if (m.window > 0) c.set(setting::kWindow, m.window);
  }
  TEGULA_TRY(c.resolve());
  return c;
}

Result<int64_t> graph_params(const ModelSpec& model) {
  return parameter_count(TEGULA_TRY(model_weights(TEGULA_TRY(model_config(model)))));
}

namespace {

std::string type_of(const Json& json) {
  const Json* type = json.find("model_type");
  const auto* name = type ? type->as<std::string>() : nullptr;
  return name ? *name : "";
}

bool is_built(const std::string& type) {
  return std::ranges::any_of(all_models(), [&](const ModelDef* m) { return m->hf_type == type; });
}

// The part of a model of images, sound and text that is the language model's.
Json text_part(const Json& json, std::vector<std::string>& notes) {
  const Json* text = json.find("text_config");
  if (text == nullptr || text->as<Json::Object>() == nullptr) return json;
  Json part = *text;
  if (const Json* tied = json.find("tie_word_embeddings")) part.set("tie_word_embeddings", *tied);
  std::string others;
  for (const Json::Member& m : *json.as<Json::Object>())
    if (m.key.ends_with("_config") && m.key != "text_config" && m.value.as<Json::Object>())
      others += cat(others.empty() ? "" : ", ", m.key);
  notes.push_back(cat("of the ", type_of(json),
                      " its language model alone (text_config) is counted",
                      others.empty() ? "" : cat(", not ", others)));
  return part;
}

// The graph is counted here, where the whole configuration is at hand: a decoder of choices cannot
// be made again from the spec alone.
Result<ModelSpec> built_spec(const Json& json, const std::string& file, const std::string& name) {
  const ModelConfig config = TEGULA_TRY(parse_model_config(without_free_keys(json).dump(), file));
  const ModelSpec spec = model_spec(config, name);
  const int64_t graph = parameter_count(TEGULA_TRY(model_weights(config)));
  const ParamCount count = TEGULA_TRY(count_params(spec));
  if (graph != count.total)
    return internal_error(
        cat(file, ": its graph has ", graph, " parameters, the planner counts ", count.total));
  return spec;
}

}  // namespace

Result<ModelPreset> read_model(const std::string& name_or_path) {
  const std::string path = path_of_config(name_or_path);
  if (path.empty() && !looks_like_path(name_or_path)) return find_model_preset(name_or_path);
  const std::string file = path.empty() ? name_or_path : path;
  const Json whole = TEGULA_TRY(Json::parse(TEGULA_TRY(read_file(file)), file));
  ModelPreset preset;
  const bool is_text = whole.find("text_config") == nullptr || is_built(type_of(whole));
  Json json = is_text ? whole : text_part(whole, preset.notes);
  const std::string type = type_of(json);
  if (is_built(type) || !is_published(type)) {
    if (!is_text) json = with_defaults(json, type);
    auto spec = built_spec(json, file, name_or_path);
    if (!spec.ok() && !is_built(type) && !type.empty())
      return unsupported(cat("'", file, "': the model_type '", type,
                             "' is none that tegula builds, nor one that it counts (",
                             published_types(), ")"));
    preset.model = TEGULA_TRY(std::move(spec));
  } else {
    std::vector<std::string> unread;
    static_cast<DecoderSizes&>(preset.model) = TEGULA_TRY(published_sizes(json, file, unread));
    preset.model.name = name_or_path;
    std::string list;
    for (const std::string& key : unread) list += cat(list.empty() ? "" : ", ", key);
    if (!list.empty()) preset.notes.push_back(cat("keys that are not read: ", list));
  }
  preset.seqlen = preset.model.max_seqlen;
  return preset;
}

}  // namespace tegula::planner
