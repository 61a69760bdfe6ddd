#include "tegula/planner/model_config.h"

#include <sys/stat.h>

#include <algorithm>

#include "tegula/base/text.h"
#include "tegula/io/file.h"
#include "tegula/io/json.h"
#include "tegula/models/checkpoint.h"
#include "tegula/models/decoder.h"
#include "tegula/models/published.h"
#include "tegula/models/text_part.h"

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
  const auto* name = json.find_as<std::string>("model_type");
  if (name != nullptr && name->starts_with("tegula-")) return json;
  Json::Object kept;
  for (const Json::Member& m : *members)
    if (std::ranges::find(kFree, m.key) == std::end(kFree)) kept.push_back(m);
  return kept;
}

std::string own_text(const ModelConfig& c, std::string_view name) {
  for (const auto& [key, value] : c.own)
    if (const auto* text = std::get_if<std::string>(&value); text && key == name) return *text;
  return {};
}

constexpr std::string_view kTypes = "type_vocab_size";

// What a family is composed of, as its graph is.
void set_decoder(const Decoder& d, const ModelConfig& c, ModelSpec& m) {
  if (d.sees_ahead) {  // BERT
    m.sees_ahead = m.has_embedding_norm = m.has_head_transform = true;
    m.n_positions = c.max_seqlen;
    for (const auto& [name, value] : c.own)
      if (name == kTypes) m.n_types = std::get<int64_t>(value);
  }
  m.has_qkv_bias = d.has_qkv_bias, m.has_bias = d.has_ffn_bias;
  m.other_attention = c.d_model * ((d.has_out_bias ? 1 : 0) - (d.has_ffn_bias ? 1 : 0));
  if (d.qk_norm == QkNorm::kHead) m.other_attention += 2 * c.head_dim;
  if (d.qk_norm == QkNorm::kWidth) m.other_attention += m.q_width() + m.kv_width();
  m.norms_per_layer = d.norms == NormPlace::kBoth ? 4 : 2;
  m.has_layer_norm = d.norm == NormKind::kLayer, m.has_norm_bias = d.has_norm_bias;
  m.has_final_norm = d.norms != NormPlace::kPost;
  m.n_ff_matrices = d.is_gated ? 3 : 2;
  m.has_known_saves = !d.sees_ahead && d.norms != NormPlace::kBehind && !d.is_parallel &&
                      d.qk_norm == QkNorm::kNone && d.fused_qkv == FusedQkv::kNone &&
                      !d.has_fused_gate && c.type != "starcoder2" && !d.experts.are_in &&
                      d.experts.shared_ff == 0;
  if (d.has_experts) {
    m.n_experts = c.n_experts, m.n_experts_per_token = c.n_experts_per_token;
    m.shared_ff = d.experts.shared_ff, m.other_router = m.shared_ff > 0 ? c.d_model : 0;
    for (int64_t i = 0; i < m.n_layers; ++i) m.n_dense_layers += !d.is_sparse(c, i);
    if (m.n_dense_layers > 0) m.dense_ff = d.experts.dense_ff;
  }
  for (int64_t layer = 0; layer < m.n_layers; ++layer) {
    const int64_t window = d.window ? d.window(c, layer) : 0;
    if (window > 0) m.window = window, ++m.n_window_layers;
  }
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
  m.has_dropout = c.dropout > 0;
  if (const auto model = find_model(c.type); model.ok() && (*model)->decoder) {
    set_decoder((*model)->decoder(c), c, m);
    if (own_text(c, "positions") == "learned") m.n_positions = c.max_seqlen;
  } else {  // GPT-2
    m.has_layer_norm = true;
    m.has_qkv_bias = m.has_bias = m.has_norm_bias = c.has_bias;
    m.n_positions = c.max_seqlen;
  }
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
    const ModelDef& model = *TEGULA_TRY(find_model(m.family));
    c.has_bias = m.has_qkv_bias && has_setting(model, setting::kBias);
    if (has_setting(model, setting::kFfnBias)) c.set(setting::kFfnBias, m.has_bias);
    if (m.is_moe()) c.n_experts = m.n_experts, c.n_experts_per_token = m.n_experts_per_token;
    if (m.window > 0) c.set(setting::kWindow, m.window);
    for (const Field& f : model.fields)
      if (f.setting->name == kTypes) c.set(*f.setting, m.n_types);
  }
  TEGULA_TRY(c.resolve());
  return c;
}

Result<int64_t> graph_params(const ModelSpec& model) {
  return parameter_count(TEGULA_TRY(model_weights(TEGULA_TRY(model_config(model)))));
}

namespace {

std::string type_of(const Json& json) {
  const auto* name = json.find_as<std::string>("model_type");
  return name ? *name : "";
}

bool is_built(const std::string& type) {
  return std::ranges::any_of(all_models(), [&](const ModelDef* m) { return m->hf_type == type; });
}

// The part of a model of images, sound and text that is the language model's.
Json text_alone(const Json& json, std::vector<std::string>& notes) {
  std::string others;
  Json part = text_part(json, others);
  if (part.is_null()) return json;
  notes.push_back(cat("of the ", type_of(json),
                      " its language model alone (text_config) is counted",
                      others.empty() ? "" : cat(", not ", others)));
  return part;
}

// What was counted is what a graph has, where a family can build it. That is made here, where the
// whole configuration is at hand: a decoder of choices cannot be made again from the spec alone.
Status check_graph(const Json& json, const std::string& file, const ModelSpec& spec) {
  const auto config = parse_model_config(without_free_keys(json).dump(), file);
  if (!config.ok()) return {};
  const int64_t graph = parameter_count(TEGULA_TRY(model_weights(*config)));
  const ParamCount count = TEGULA_TRY(count_params(spec));
  if (graph == count.total) return {};
  return internal_error(
      cat(file, ": its graph has ", graph, " parameters, the planner counts ", count.total));
}

Result<ModelSpec> built_spec(const Json& json, const std::string& file, const std::string& name) {
  const ModelConfig config = TEGULA_TRY(parse_model_config(without_free_keys(json).dump(), file));
  const ModelSpec spec = model_spec(config, name);
  TEGULA_TRY(check_graph(json, file, spec));
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
  Json json = is_text ? whole : text_alone(whole, preset.notes);
  const std::string type = type_of(json);
  if (!is_published(type)) {
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
    if (is_built(type)) TEGULA_TRY(check_graph(with_defaults(json, type), file, preset.model));
    if (!unread.empty()) preset.notes.push_back(cat("keys that are not read: ", joined(unread)));
  }
  preset.seqlen = preset.model.max_seqlen;
  return preset;
}

}  // namespace tegula::planner
