#include "tegula/models/checkpoint.h"

#include <algorithm>

#include "tegula/io/file.h"
#include "tegula/io/hf_config.h"
#include "tegula/ir/reference.h"

namespace tegula {

namespace {

// Our family names and Hugging Face's model types.
constexpr std::pair<std::string_view, std::string_view> kTypes[] = {{"gpt2", "gpt2"},
                                                                    {"llama", "llama"},
                                                                    {"moe", "mixtral"},
                                                                    {"mlp", "tegula-mlp"},
                                                                    {"lstm", "tegula-lstm"}};

std::string_view activation(std::string_view type) {
  return type == "gpt2" || type == "mlp" ? "gelu_new" : type == "lstm" ? "tanh" : "silu";
}

}  // namespace

std::string model_config_json(const ModelConfig& m, DType dtype) {
  HfConfig c;
  for (auto [ours, theirs] : kTypes)
    if (ours == m.type) c.model_type = theirs;
  const bool attends = m.type == "gpt2" || m.type == "llama" || m.type == "moe";
  c.vocab_size = m.vocab_size, c.n_layers = m.n_layers;
  if (attends) c.n_heads = m.n_heads, c.n_kv_heads = m.n_kv_heads, c.head_dim = m.head_dim;
  c.d_model = m.d_model, c.d_ff = m.d_ff, c.max_seqlen = m.max_seqlen, c.norm_eps = m.norm_eps;
  c.rope_theta = m.rope_theta, c.activation = activation(m.type);
  c.tie_embeddings = m.is_tied(), c.bias = m.has_bias, c.dropout = m.dropout, c.dtype = dtype;
  if (m.type == "moe")
    c.n_experts = m.n_experts, c.n_experts_per_token = m.n_experts_per_token,
    c.balance_loss = m.balance_loss;
  return format_hf_config(c);
}

Result<ModelConfig> load_model_config(const std::string& directory) {
  const HfConfig c = TEGULA_TRY(read_hf_config(directory));
  ModelConfig m;
  m.type.clear();
  for (auto [ours, theirs] : kTypes)
    if (theirs == c.model_type) m.type = ours;
  if (m.type.empty())
    return unsupported(
        cat(directory, "/config.json: model_type ", c.model_type, " is not supported"));
  // "gelu_pytorch_tanh" is another name of "gelu_new".
  const std::string_view computed = activation(m.type);
  if (c.activation != computed && !(computed == "gelu_new" && c.activation == "gelu_pytorch_tanh"))
    return unsupported(cat(directory, "/config.json: a ", c.model_type, " with the activation ",
                           c.activation, "; tegula computes ", computed));
  m.vocab_size = c.vocab_size, m.n_layers = c.n_layers, m.d_model = c.d_model, m.d_ff = c.d_ff;
  m.n_heads = std::max<int64_t>(c.n_heads, 1), m.n_kv_heads = c.n_kv_heads, m.head_dim = c.head_dim;
  m.max_seqlen = c.max_seqlen, m.norm_eps = c.norm_eps, m.rope_theta = c.rope_theta;
  m.tie_embeddings = c.tie_embeddings, m.has_bias = c.bias, m.dropout = c.dropout;
  if (m.type == "moe")
    m.n_experts = c.n_experts, m.n_experts_per_token = c.n_experts_per_token,
    m.balance_loss = c.balance_loss;
  if (Status st = m.resolve(); !st.ok()) {
    Error error = std::move(st).error();
    error.message = cat("'", join_path(directory, "config.json"), "': ", error.message);
    return error;
  }
  return m;
}

std::vector<std::pair<std::string, TensorRef>> checkpoint_parts(const std::string& name,
                                                                const TensorRef& t) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t at = name.find(kExperts);
  if (at == std::string::npos) return {{name, t}};
  const size_t end = at + kExperts.size();
  std::vector<std::pair<std::string, TensorRef>> parts;
  for (int64_t e = 0; e < t.shape[0]; ++e) {
    TensorRef part =
        contiguous_ref(static_cast<std::byte*>(t.data) + e * t.stride[0] * size_bytes(t.dtype),
                       {t.dtype, Shape(std::span(shape_of(t)).subspan(1))});
    parts.emplace_back(cat(name.substr(0, end), e, ".", name.substr(end)), part);
  }
  return parts;
}

std::vector<std::pair<std::string, TensorRef>> checkpoint_tensors(
    const ModelConfig& config, const std::vector<std::pair<std::string, TensorRef>>& weights,
    std::vector<std::vector<float>>& zeros) {
  std::vector<std::pair<std::string, TensorRef>> out;
  for (const auto& [name, t] : weights)
    for (auto& part : checkpoint_parts(name, t)) out.push_back(std::move(part));
  if (config.type != "gpt2" || config.has_bias) return out;
  // transformers' GPT-2 always has biases.
  for (const auto& [name, t] : weights) {
    const bool norm = name.find(".ln_") != std::string::npos;
    const bool linear = t.rank == 2 && name.find(".h.") != std::string::npos;
    if (!norm && !linear) continue;
    zeros.emplace_back(static_cast<size_t>(t.shape[t.rank - 1]), 0.0f);
    const Type type{DType::kF32, {t.shape[t.rank - 1]}};
    out.emplace_back(name.substr(0, name.rfind('.')) + ".bias",
                     contiguous_ref(zeros.back().data(), type));
  }
  return out;
}

}  // namespace tegula
