#include "tegula/models/published.h"

#include <algorithm>
#include <set>

#include "tegula/base/text.h"
#include "tegula/io/json.h"
#include "tegula/models/common/names.h"
#include "tegula/models/common/published_rows.h"
#include "tegula/models/config_keys.h"

namespace tegula {

namespace {

struct Row {
  const Json& json;

  const Json* find(std::string_view key) const { return json.find("is")->find(key); }
  int64_t size(std::string_view key, int64_t otherwise) const {
    const Json* value = find(key);
    return value ? *value->as<int64_t>() : otherwise;
  }
  bool is(std::string_view key) const { return find(key) != nullptr; }
  std::string text(std::string_view key) const {
    const Json* value = find(key);
    return value ? *value->as<std::string>() : "";
  }
};

const Json& rows() {
  static const Json all = *Json::parse(kPublishedRows, "published_rows.h");
  return all;
}

const Json* find_row(std::string_view type) {
  for (const Json& row : *rows().as<Json::Array>())
    if (*row.find("type") == Json(type)) return &row;
  return nullptr;
}

// Keys that change neither parameters nor operations: another program's, or values of numbers.
constexpr std::string_view kCostFree =
    "model_type rope_theta rope_scaling rope_parameters rope_local_base_freq "
    "partial_rotary_factor rotary_pct rotary_emb_base rope_interleave hidden_act "
    "hidden_activation activation_function dtype torch_dtype rms_norm_eps layer_norm_eps "
    "layer_norm_epsilon norm_epsilon attention_dropout embd_pdrop resid_pdrop hidden_dropout "
    "residual_dropout embedding_dropout dropout layerdrop query_pre_attn_scalar "
    "attn_logit_softcapping final_logit_softcapping use_bidirectional_attention "
    "original_max_position_embeddings swiglu_alpha swiglu_limit router_aux_loss_coef "
    "router_jitter_noise norm_topk_prob routed_scaling_factor scoring_func topk_method n_group "
    "topk_group aux_loss_alpha seq_aux ep_size qk_head_dim head_dim_total pretraining_tp "
    "no_rope_layers no_rope_layer_interval logit_scale logits_scaling attention_multiplier "
    "embedding_multiplier residual_multiplier initial_context_length max_window_layers "
    "moe_layer_freq clip_qkv is_causal quantization_config use_mrope "
    "attention_probs_dropout_prob hidden_dropout_prob activation_dropout use_parallel_residual "
    "init_std _remove_final_layer_norm";

class Keys {
 public:
  Keys(const Json& json, const std::string& path) : json_(json), path_(path) {}

  const Json* find(std::string_view key) {
    used_.insert(std::string(key));
    const Json* value = json_.find(key);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  Error wrong(std::string_view key, std::string_view what) const {
    const Json* value = json_.find(key);
    return invalid_argument(
        cat("'", path_, "': the key \"", key, "\" ",
            value ? cat("is ", value->dump(), ", not ") : "is missing: ", what));
  }
  Error refused(std::string_view key, std::string_view what) const {
    return unsupported(cat("'", path_, "': the planner does not count \"", key,
                           "\": ", json_.find(key)->dump(), ": ", what));
  }
  // The value of the first key that is there, by spaces; `otherwise` where none is. -1: one must
  // be.
  Result<int64_t> size(std::string_view keys, int64_t otherwise) {
    std::string_view first = keys.substr(0, keys.find(' '));
    int64_t found = -1;
    for (std::string_view rest = keys; !rest.empty();) {
      const std::string_view key = take_until(' ', rest);
      const Json* value = find(key);
      if (value == nullptr || found >= 0) continue;
      const auto* i = value->as<int64_t>();
      if (i == nullptr || *i < 0 || *i > int64_t{1} << 40) return wrong(key, "a size");
      found = *i;
    }
    if (found >= 0) return found;
    if (otherwise < 0) return wrong(first, "a size");
    return otherwise;
  }
  Result<bool> flag(std::string_view key, bool otherwise) {
    if (key == "always") return true;
    if (key.empty()) return false;
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (value->as<bool>() == nullptr) return wrong(key, "true or false");
    return *value->as<bool>();
  }
  std::vector<std::string> unread() const {
    std::vector<std::string> keys;
    for (const Json::Member& m : *json_.as<Json::Object>())
      if (!used_.contains(m.key) && !is_free_key(m.key) && !m.value.is_null() &&
          !any_word(kCostFree, [&](std::string_view word) { return word == m.key; }))
        keys.push_back(m.key);
    return keys;
  }

 private:
  const Json& json_;
  const std::string& path_;
  std::set<std::string> used_;
};

Status read_windows(Keys& keys, const Row& row, DecoderSizes& m) {
  const int64_t window = TEGULA_TRY(keys.size("sliding_window", 0));
  const int64_t from = TEGULA_TRY(keys.size("max_window_layers", 28));
  const bool uses = TEGULA_TRY(keys.flag("use_sliding_window", false));
  const int64_t pattern = TEGULA_TRY(
      keys.size("sliding_window_pattern _sliding_window_pattern", row.size("pattern", 0)));
  const Json* types = keys.find("layer_types");
  const std::string windows = row.text("windows");
  if (window == 0 || windows.empty()) return {};
  if (windows == "from layer" && !uses) return {};
  if (types != nullptr && types->as<Json::Array>() != nullptr) {
    const auto& list = *types->as<Json::Array>();
    if (static_cast<int64_t>(list.size()) != m.n_layers)
      return keys.wrong("layer_types", cat("a list of ", m.n_layers, " layers"));
    m.n_window_layers = std::ranges::count(list, Json("sliding_attention"));
    if (m.n_window_layers + std::ranges::count(list, Json("full_attention")) != m.n_layers)
      return keys.refused("layer_types", "it knows full_attention and sliding_attention");
  } else {
    for (int64_t i = 0; i < m.n_layers; ++i)
      m.n_window_layers += windows == "all"          ? 1
                           : windows == "from layer" ? i >= from
                                                     : pattern > 0 && (i + 1) % pattern != 0;
  }
  if (m.n_window_layers > 0) m.window = window;
  return {};
}

Status read_experts(Keys& keys, const Row& row, DecoderSizes& m) {
  m.n_experts = TEGULA_TRY(keys.size("num_experts num_local_experts n_routed_experts", -1));
  m.n_experts_per_token = TEGULA_TRY(keys.size("num_experts_per_tok", -1));
  m.dense_ff = m.d_ff;
  m.d_ff = TEGULA_TRY(keys.size(row.text("expert_ff"), -1));
  m.shared_ff = TEGULA_TRY(keys.size("n_shared_experts", 0)) * m.d_ff;
  if (row.is("has_shared_gate"))
    m.shared_ff = TEGULA_TRY(keys.size("shared_expert_intermediate_size", -1));
  if (row.is("has_shared_gate")) m.other_router += m.d_model;
  if (row.is("has_router_bias")) m.other_router += m.n_experts;
  // Which layers have no experts: the first ones, those of a list, and those between.
  const int64_t first = TEGULA_TRY(keys.size("first_k_dense_replace", 0));
  const int64_t step = TEGULA_TRY(keys.size("decoder_sparse_step", 1));
  const Json* only = keys.find("mlp_only_layers");
  const auto* list = only ? only->as<Json::Array>() : nullptr;
  if (only != nullptr && list == nullptr) return keys.wrong("mlp_only_layers", "a list of layers");
  if (step < 1) return keys.wrong("decoder_sparse_step", "at least 1");
  for (int64_t i = 0; i < m.n_layers; ++i) {
    const bool is_listed = list && std::ranges::find(*list, Json(i)) != list->end();
    m.n_dense_layers += i < first || is_listed || (i + 1) % step != 0;
  }
  if (m.n_dense_layers == m.n_layers) {  // no layer has experts
    m.d_ff = m.dense_ff, m.n_experts = m.n_experts_per_token = 1;
    m.shared_ff = m.other_router = m.n_dense_layers = 0;
  }
  if (m.n_dense_layers == 0) m.dense_ff = 0;
  return {};
}

Status read_latent(Keys& keys, bool has_bias, DecoderSizes& m) {
  m.kv_rank = TEGULA_TRY(keys.size("kv_lora_rank", -1));
  m.q_rank = TEGULA_TRY(keys.size("q_lora_rank", 0));
  m.rope_dim = TEGULA_TRY(keys.size("qk_rope_head_dim", -1));
  m.head_dim = m.rope_dim + TEGULA_TRY(keys.size("qk_nope_head_dim", -1));
  m.v_head_dim = TEGULA_TRY(keys.size("v_head_dim", -1));
  m.n_kv_heads = m.n_heads;
  m.other_attention += m.q_rank + m.kv_rank;  // their norms
  if (has_bias) m.other_attention += m.q_rank + m.kv_rank + m.rope_dim + m.d_model;
  return {};
}

}  // namespace

bool is_published(std::string_view model_type) {
  const Json* row = find_row(model_type);
  return row != nullptr && !row->find("is")->as<Json::Object>()->empty();
}

std::string published_types() {
  std::string types;
  for (const Json& row : *rows().as<Json::Array>())
    if (!row.find("is")->as<Json::Object>()->empty())
      types += cat(types.empty() ? "" : ", ", *row.find("type")->as<std::string>());
  return types;
}

Json with_defaults(const Json& json, std::string_view model_type) {
  const Json* row = find_row(model_type);
  if (row == nullptr) return json;
  Json merged = json;
  for (const Json::Member& m : *row->find("defaults")->as<Json::Object>())
    if (json.find(m.key) == nullptr &&
        !(m.key == "num_experts" && json.find("num_local_experts") != nullptr))
      merged.set(m.key, m.value);
  return merged;
}

Result<DecoderSizes> published_sizes(const Json& json, const std::string& path,
                                     std::vector<std::string>& unread) {
  const std::string& type = *json.find("model_type")->as<std::string>();
  const Row row = {*find_row(type)};
  const Json whole = with_defaults(json, type);
  Keys keys(whole, path);
  DecoderSizes m;
  m.n_layers = TEGULA_TRY(keys.size("num_hidden_layers", -1));
  m.d_model = TEGULA_TRY(keys.size("hidden_size", -1));
  m.n_heads = TEGULA_TRY(keys.size("num_attention_heads", -1));
  if (m.n_heads == 0) return keys.wrong("num_attention_heads", "at least 1");
  m.n_kv_heads = TEGULA_TRY(keys.size("num_key_value_heads", m.n_heads));
  m.head_dim = TEGULA_TRY(keys.size("head_dim", m.d_model / m.n_heads));
  m.d_ff = TEGULA_TRY(keys.size("intermediate_size ffn_dim", -1));
  m.vocab_size = TEGULA_TRY(keys.size("vocab_size", -1));
  m.max_seqlen = TEGULA_TRY(keys.size("max_position_embeddings", -1));
  m.is_tied = TEGULA_TRY(keys.flag("tie_word_embeddings", false));
  m.n_ff_matrices = row.size("ff_matrices", 3);
  m.norms_per_layer = row.size("norms", 2);
  m.has_norm_bias = m.has_layer_norm = row.is("has_norm_bias");
  m.has_norm_weights = !row.is("plain_norms");
  if (row.is("extra_positions")) m.n_positions = m.max_seqlen + row.size("extra_positions", 0);
  const bool qkv = TEGULA_TRY(keys.flag(row.text("qkv_bias"), false));
  const bool out = TEGULA_TRY(keys.flag(row.text("out_bias"), false));
  const bool ff = TEGULA_TRY(keys.flag(row.text("ff_bias"), false));
  if (row.is("is_latent")) {
    TEGULA_TRY(read_latent(keys, TEGULA_TRY(keys.flag("attention_bias", false)), m));
  } else {
    m.has_qkv_bias = qkv;
    m.has_bias = ff;  // of attention's result, too
    m.other_attention += m.d_model * ((out ? 1 : 0) - (ff ? 1 : 0));
  }
  if (row.is("qk_norm") &&
      (!row.is("has_qk_norm") || TEGULA_TRY(keys.flag(row.text("has_qk_norm"), false))))
    m.other_attention +=
        row.text("qk_norm") == "head" ? 2 * m.head_dim : m.q_width() + m.kv_width();
  if (row.is("has_sinks")) m.other_attention += m.n_heads;
  if (row.is("expert_ff")) TEGULA_TRY(read_experts(keys, row, m));
  TEGULA_TRY(read_windows(keys, row, m));
  // Other values would be other sizes than these.
  for (const std::string_view key : {"mlp_bias", "lm_head_bias", "qk_layernorm"})
    if (key != row.text("ff_bias") && TEGULA_TRY(keys.flag(key, false)))
      return keys.refused(key, "of this model_type");
  if (const Json* width = keys.find("word_embed_proj_dim"); width && !(*width == Json(m.d_model)))
    return keys.refused("word_embed_proj_dim",
                        cat("embeddings are hidden_size ", m.d_model, " wide"));
  if (!TEGULA_TRY(keys.flag("do_layer_norm_before", true))) m.has_final_norm = false;
  if (!TEGULA_TRY(keys.flag("layer_norm_elementwise_affine", true)))
    return keys.refused("layer_norm_elementwise_affine", "norms have weights");
  unread = keys.unread();
  return m;
}

}  // namespace tegula
