#include "tegula/models/common/gguf_architectures.h"

#include <array>
#include <cstring>

#include "tegula/models/common/names.h"

namespace tegula {
namespace {

using enum GgufChange;

constexpr GgufName kWhole[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr GgufName kGemmaWhole[] = {{"token_embd", "model.embed_tokens"},
                                    {"output_norm", "model.norm", kPlusOne},
                                    {"output", "lm_head"}};
// Lists of names, one behind another.
template <size_t... N>
constexpr auto together(const GgufName (&... lists)[N]) {
  std::array<GgufName, (N + ...)> all{};
  size_t at = 0;
  const auto add = [&](const auto& list) {
    for (const GgufName& name : list) all[at++] = name;
  };
  (add(lists), ...);
  return all;
}
constexpr GgufName kNorms[] = {{"attn_norm", "input_layernorm"},
                               {"ffn_norm", "post_attention_layernorm"}};
constexpr GgufName kAttention[] = {{"attn_q", "self_attn.q_proj"},
                                   {"attn_k", "self_attn.k_proj"},
                                   {"attn_v", "self_attn.v_proj"},
                                   {"attn_output", "self_attn.o_proj"}};
constexpr GgufName kPairedAttention[] = {{"attn_q", "self_attn.q_proj", kQueryPairs},
                                         {"attn_k", "self_attn.k_proj", kKeyPairs},
                                         {"attn_v", "self_attn.v_proj"},
                                         {"attn_output", "self_attn.o_proj"}};
constexpr GgufName kHeadNorms[] = {{"attn_q_norm", "self_attn.q_norm"},
                                   {"attn_k_norm", "self_attn.k_norm"}};
constexpr GgufName kGated[] = {
    {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"}};
constexpr auto kLlamaLayer = together(kNorms, kPairedAttention, kGated);
constexpr auto kMixtralLayer = together(kNorms, kPairedAttention,
                                        {{"ffn_gate_inp", "block_sparse_moe.gate"},
                                         {"ffn_gate_exps", "block_sparse_moe.experts.w1"},
                                         {"ffn_down_exps", "block_sparse_moe.experts.w2"},
                                         {"ffn_up_exps", "block_sparse_moe.experts.w3"}});
constexpr auto kQwenLayer = together(kNorms, kAttention, kHeadNorms, kGated,
                                     {{"ffn_gate_inp", "mlp.gate"},
                                      {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                      {"ffn_down_exps", "mlp.experts.down_proj"},
                                      {"ffn_up_exps", "mlp.experts.up_proj"},
                                      {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                      {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                      {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                                      {"ffn_up_shexp", "mlp.shared_expert.up_proj"}});
constexpr auto kGemmaLayer =
    together(kAttention, kGated,
             {{"attn_norm", "input_layernorm", kPlusOne},
              {"attn_q_norm", "self_attn.q_norm", kPlusOne},
              {"attn_k_norm", "self_attn.k_norm", kPlusOne},
              {"post_attention_norm", "post_attention_layernorm", kPlusOne},
              {"ffn_norm", "pre_feedforward_layernorm", kPlusOne},
              {"post_ffw_norm", "post_feedforward_layernorm", kPlusOne}});
constexpr auto kOlmo2Layer = together(kAttention, kHeadNorms, kGated,
                                      {{"post_attention_norm", "post_attention_layernorm"},
                                       {"post_ffw_norm", "post_feedforward_layernorm"}});
constexpr GgufName kPhi3Layer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_qkv", "self_attn.qkv_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},      {"ffn_down", "mlp.down_proj"}};
constexpr auto kStarcoder2Layer =
    together(kNorms, kAttention, {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}});
constexpr GgufName kNeoxWhole[] = {{"token_embd", "gpt_neox.embed_in"},
                                   {"output_norm", "gpt_neox.final_layer_norm"},
                                   {"output", "embed_out"}};
constexpr GgufName kNeoxLayer[] = {
    {"attn_norm", "input_layernorm"},   {"attn_qkv", "attention.query_key_value", kByPart},
    {"attn_output", "attention.dense"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_up", "mlp.dense_h_to_4h"},    {"ffn_down", "mlp.dense_4h_to_h"}};
constexpr GgufName kGpt2Whole[] = {{"token_embd", "transformer.wte"},
                                   {"position_embd", "transformer.wpe"},
                                   {"output_norm", "transformer.ln_f"},
                                   {"output", "lm_head"}};
constexpr GgufName kGpt2Layer[] = {{"attn_norm", "ln_1"},
                                   {"attn_qkv", "attn.c_attn", kTransposed},
                                   {"attn_output", "attn.c_proj", kTransposed},
                                   {"ffn_norm", "ln_2"},
                                   {"ffn_up", "mlp.c_fc", kTransposed},
                                   {"ffn_down", "mlp.c_proj", kTransposed}};

constexpr std::string_view kLayers = "model.layers.", kWindow = "sliding_window";
constexpr GgufArchitecture kArchitectures[] = {
    {"llama", "mixtral", "expert_count", kWhole, kMixtralLayer},
    {"llama",
     "mistral",
     "attention.sliding_window",
     kWhole,
     kLlamaLayer,
     kLayers,
     false,
     {},
     kWindow},
    {"llama", "llama", {}, kWhole, kLlamaLayer},
    {"smollm3", "smollm3", {}, kWhole, kLlamaLayer},
    {"qwen2", "qwen2", {}, kWhole, kQwenLayer},
    {"qwen3", "qwen3", {}, kWhole, kQwenLayer},
    {"qwen2moe", "qwen2_moe", {}, kWhole, kQwenLayer, kLayers, false, "norm_topk_prob=false"},
    {"qwen3moe", "qwen3_moe", {}, kWhole, kQwenLayer, kLayers, false, "norm_topk_prob=true"},
    {"gemma2", "gemma2", {}, kGemmaWhole, kGemmaLayer},
    {"gemma3", "gemma3_text", {}, kGemmaWhole, kGemmaLayer},
    {"phi3", "phi3", {}, kWhole, kPhi3Layer},
    {"olmo2", "olmo2", {}, kWhole, kOlmo2Layer},
    {"starcoder2", "starcoder2", {}, kWhole, kStarcoder2Layer, kLayers, true, {}, kWindow},
    {"gptneox", "gpt_neox", {}, kNeoxWhole, kNeoxLayer, "gpt_neox.layers.", true},
    {"gpt2", "gpt2", {}, kGpt2Whole, kGpt2Layer, "transformer.h.", true, {}, {}, true}};

// "3.rest" -> "3" and "rest"; false: no number stands there.
bool cut_number(std::string_view text, std::string_view& number, std::string_view& rest) {
  const size_t n = text.find_first_not_of("0123456789");
  if (n == 0 || n == text.npos || text[n] != '.') return false;
  number = text.substr(0, n), rest = text.substr(n + 1);
  return true;
}

// The entry of a list of names for a name with ".weight" or ".bias", or "".
GgufPlace place(std::span<const GgufName> names, std::string_view GgufName::*from,
                std::string_view GgufName::*to, std::string_view name) {
  for (const std::string_view end : {".weight", ".bias"}) {
    if (!name.ends_with(end)) continue;
    const std::string_view stem = name.substr(0, name.size() - end.size());
    for (const GgufName& n : names)
      if (n.*from == stem) {
        const bool keeps = n.change == kTransposed && end == ".bias";
        return {cat(n.*to, end), keeps ? kNone : n.change};
      }
  }
  return {};
}

GgufPlace place(const GgufArchitecture& a, std::string_view GgufName::*from,
                std::string_view GgufName::*to, std::string_view prefix, std::string_view other,
                std::string_view name) {
  std::string_view number, rest;
  if (!name.starts_with(prefix) || !cut_number(name.substr(prefix.size()), number, rest))
    return place(a.whole, from, to, name);
  GgufPlace found = place(a.layer, from, to, rest);
  if (!found.name.empty()) found.name = cat(other, number, ".", found.name);
  return found;
}

}  // namespace

std::span<const GgufArchitecture> gguf_architectures() { return kArchitectures; }

GgufPlace model_place(const GgufArchitecture& a, std::string_view gguf) {
  return place(a, &GgufName::gguf, &GgufName::model, "blk.", a.layers, gguf);
}
GgufPlace gguf_place(const GgufArchitecture& a, std::string_view model) {
  return place(a, &GgufName::model, &GgufName::gguf, a.layers, "blk.", model);
}

bool has_head_of_table(const GgufFile& file, const GgufArchitecture& a) {
  const GgufTensor *head = file.tensor("output.weight"), *table = file.tensor("token_embd.weight");
  if (!a.has_head || head == nullptr || table == nullptr) return false;
  const TensorRef &x = head->bytes, &y = table->bytes;
  return head->format == table->format && x.dtype == y.dtype && head->shape == table->shape &&
         std::memcmp(x.data, y.data, static_cast<size_t>(x.numel() * size_bytes(x.dtype))) == 0;
}

RowOrder gguf_row_order(GgufChange change, int64_t n_rows, const ModelConfig& config) {
  const int64_t heads = change == GgufChange::kKeyPairs ? config.n_kv_heads : config.n_heads;
  const int64_t parts = change == GgufChange::kByPart ? 3 : 2;
  if (heads == 0 || n_rows % (heads * parts) != 0) return {};
  const int64_t n = n_rows / (heads * parts);
  if (change == GgufChange::kByPart) return {.a = 3, .b = heads, .n = n};
  return {.a = n, .b = 2, .n = 1};
}

Result<const GgufArchitecture*> gguf_architecture_of(const GgufFile& file) {
  constexpr std::string_view kKey = "general.architecture";
  const GgufValue* value = file.find(kKey);
  if (value == nullptr || !value->text())
    return invalid_argument(cat("'", file.path(), "': key ", kKey, " is ",
                                value ? value->shown() : "missing", ": is it a model?"));
  const GgufValue* type = file.find("general.type");
  if (type != nullptr && type->text() != "model")
    return unsupported(
        cat("'", file.path(), "': key general.type is ", type->shown(), ": it is no model"));
  const std::string_view name = *value->text();
  std::string known;
  for (const GgufArchitecture& a : kArchitectures) {
    const GgufValue* told = file.find(cat(name, ".", a.told_by));
    const bool is_told = a.told_by.empty() || (told != nullptr && told->number().value_or(1) != 0);
    if (a.name == name && is_told) return &a;
    if (known.find(cat(a.name)) == known.npos) known += cat(known.empty() ? "" : ", ", a.name);
  }
  return unsupported(cat("'", file.path(), "': key ", kKey, ": '", name,
                         "' is not an architecture that tegula builds from a GGUF file (", known,
                         ")"));
}

Result<const GgufArchitecture*> gguf_architecture_of(const ModelConfig& config) {
  const ModelDef* model = TEGULA_TRY(find_model(config.type));
  std::string known;
  for (const GgufArchitecture& a : kArchitectures) {
    if (a.model_type == model->hf_type) return &a;
    known += cat(known.empty() ? "" : ", ", a.model_type);
  }
  return unsupported(
      cat("a model of the type ", config.type, " has no form in GGUF (of these: ", known, ")"));
}

}  // namespace tegula
