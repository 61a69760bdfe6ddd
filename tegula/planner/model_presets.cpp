#include "tegula/planner/model_presets.h"

#include <vector>

#include "tegula/planner/nearest.h"

namespace tegula::planner {

namespace {

// Layers, width, heads and head size; then what the model's own paper or config.json says.
ModelSpec gpt(const char* name, int64_t layers, int64_t d, int64_t heads, int64_t positions,
              int64_t vocab = 50257) {
  ModelSpec m;
  m.name = name, m.family = "gpt2";
  m.n_layers = layers, m.d_model = d, m.n_heads = m.n_kv_heads = heads, m.head_dim = d / heads;
  m.d_ff = 4 * d, m.vocab_size = vocab, m.n_positions = m.max_seqlen = positions;
  m.is_tied = m.has_layer_norm = m.has_norm_bias = m.has_qkv_bias = m.has_bias = m.has_dropout =
      true;
  return m;
}

ModelSpec llama(const char* name, int64_t layers, int64_t d, int64_t heads, int64_t kv_heads,
                int64_t d_ff, int64_t vocab, int64_t max_seqlen) {
  ModelSpec m;
  m.name = name, m.family = "llama";
  m.n_layers = layers, m.d_model = d, m.n_heads = heads, m.n_kv_heads = kv_heads;
  m.head_dim = d / heads, m.d_ff = d_ff, m.vocab_size = vocab, m.max_seqlen = max_seqlen;
  m.n_ff_matrices = 3;
  return m;
}

// Jiang et al. 2023: every layer has the window.
ModelSpec mistral() {
  ModelSpec m = llama("mistral-7b", 32, 4096, 32, 8, 14336, 32000, 32768);
  m.family = "mistral", m.window = 4096, m.n_window_layers = 32;
  return m;
}

ModelSpec mixtral(const char* name, int64_t layers, int64_t d, int64_t heads, int64_t d_ff,
                  int64_t max_seqlen) {
  ModelSpec m = llama(name, layers, d, heads, 8, d_ff, 32000, max_seqlen);
  m.family = "moe", m.n_experts = 8, m.n_experts_per_token = 2;
  return m;
}

ModelSpec qwen2() {
  ModelSpec m = llama("qwen2-7b", 28, 3584, 28, 4, 18944, 152064, 131072);
  m.family = "qwen2", m.has_qkv_bias = true;
  return m;
}

// Chowdhery et al. 2022, section 2 and table 1: one key/value head, SwiGLU, attention and
// feed-forward layer side by side behind one norm, no biases, norms of a weight alone.
ModelSpec palm() {
  ModelSpec m = llama("palm-540b", 118, 18432, 48, 1, 4 * 18432, 256000, 2048);
  m.family = "", m.head_dim = 256, m.norms_per_layer = 1, m.is_tied = true;
  return m;
}

// Le Scao et al. 2022, section 3.2: ALiBi, a norm behind the embedding.
ModelSpec bloom() {
  ModelSpec m = gpt("bloom-176b", 70, 14336, 112, 0, 250880);
  m.family = "", m.max_seqlen = 2048, m.has_embedding_norm = true, m.has_dropout = false;
  return m;
}

// Rae et al. 2021, section 2.1; Hoffmann et al. 2022, table 4: RMS norms, relative positions.
ModelSpec gopher(const char* name, int64_t d, int64_t heads) {
  ModelSpec m = gpt(name, 80, d, heads, 0, 32000);
  m.family = "", m.max_seqlen = 2048;
  m.has_norm_bias = m.has_dropout = false, m.has_relative_positions = true;
  return m;
}

// Zaremba et al. 2014, section 4.1, the large one.
ModelSpec lstm() {
  ModelSpec m;
  m.name = "lstm-large", m.family = "lstm", m.kind = ModelKind::kLstm;
  m.n_layers = 2, m.d_model = 1500, m.vocab_size = 10000, m.max_seqlen = 35;
  m.has_final_norm = false;
  return m;
}

// A window of eight embeddings and three square layers: of no paper, as `tegula train --model mlp`.
ModelSpec mlp() {
  ModelSpec m;
  m.name = "mlp", m.family = "mlp", m.kind = ModelKind::kMlp, m.is_tied = true;
  m.n_layers = 4, m.d_model = 512, m.d_ff = 2048, m.vocab_size = 50257, m.max_seqlen = 1024;
  m.has_final_norm = false;
  return m;
}

constexpr int64_t kK = 1024;

std::vector<ModelPreset> make_presets() {
  std::vector<ModelPreset> all = {
      // Radford et al. 2019, table 2: batches of 512 sequences.
      {gpt("gpt2", 12, 768, 12, kK), kK, 512 * kK},
      {gpt("gpt2-medium", 24, 1024, 16, kK), kK, 512 * kK},
      {gpt("gpt2-large", 36, 1280, 20, kK), kK, 512 * kK},
      {gpt("gpt2-xl", 48, 1600, 25, kK), kK, 512 * kK},
      // Brown et al. 2020, table 2.1, where heads · head size is the width (of XL's 24 · 128 and
      // 13B's 40 · 128 it is not: 16 heads and width 5120 give the counts of its table D.1). "0.5M"
      // tokens are read as 2^19, "3.2M" as 1600 sequences.
      {gpt("gpt3-125m", 12, 768, 12, 2 * kK), 2 * kK, 512 * kK},
      {gpt("gpt3-350m", 24, 1024, 16, 2 * kK), 2 * kK, 512 * kK},
      {gpt("gpt3-760m", 24, 1536, 16, 2 * kK), 2 * kK, 512 * kK},
      {gpt("gpt3-1.3b", 24, 2048, 16, 2 * kK), 2 * kK, 1024 * kK},
      {gpt("gpt3-2.7b", 32, 2560, 32, 2 * kK), 2 * kK, 1024 * kK},
      {gpt("gpt3-6.7b", 32, 4096, 32, 2 * kK), 2 * kK, 2048 * kK},
      {gpt("gpt3-13b", 40, 5120, 40, 2 * kK), 2 * kK, 2048 * kK},
      {gpt("gpt3-175b", 96, 12288, 96, 2 * kK), 2 * kK, 1600 * 2 * kK},
      // Touvron et al. 2023b, table 1: 4M tokens.
      {llama("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 4 * kK), 4 * kK, 4096 * kK},
      {llama("llama2-13b", 40, 5120, 40, 40, 13824, 32000, 4 * kK), 4 * kK, 4096 * kK},
      {llama("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 4 * kK), 4 * kK, 4096 * kK},
      // Llama Team 2024, tables 3 and 4: 16M tokens for 405B.
      {llama("llama3-8b", 32, 4096, 32, 8, 14336, 128256, 128 * kK), 8 * kK, 8192 * kK},
      {llama("llama3-70b", 80, 8192, 64, 8, 28672, 128256, 128 * kK), 8 * kK, 8192 * kK},
      {llama("llama3-405b", 126, 16384, 128, 8, 53248, 128256, 128 * kK), 8 * kK, 16384 * kK},
      {mistral(), 8 * kK, 4096 * kK},
      {mixtral("mixtral-8x7b", 32, 4096, 32, 14336, 32 * kK), 32 * kK, 4096 * kK},
      {mixtral("mixtral-8x22b", 56, 6144, 48, 16384, 64 * kK), 32 * kK, 4096 * kK},
      {qwen2(), 32 * kK, 4096 * kK},
      // PaLM section 5: up to 2048 sequences; MT-NLG (Smith et al. 2022, section 3.1): 1920.
      {palm(), 2 * kK, 2048 * 2 * kK},
      {gpt("mt-nlg-530b", 105, 20480, 128, 2 * kK, 51200), 2 * kK, 1920 * 2 * kK},
      {bloom(), 2 * kK, 2048 * 2 * kK},
      {gopher("gopher-280b", 16384, 128), 2 * kK, 3072 * kK * 2},
      {gopher("chinchilla-70b", 8192, 64), 2 * kK, 1536 * kK * 2},
      {lstm(), 35, 35 * 20},
      {mlp(), kK, 512 * kK}};
  return all;
}

}  // namespace

std::span<const ModelPreset> model_presets() {
  static const std::vector<ModelPreset> presets = make_presets();
  return presets;
}

Result<ModelPreset> find_model_preset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelPreset& p : model_presets()) {
    if (p.model.name == name) return p;
    names.push_back(p.model.name);
  }
  return invalid_argument(cat("there is no model '", name, "': the nearest are ",
                              nearest_names(name, names),
                              "; or name a config.json or the folder that holds one"));
}

}  // namespace tegula::planner
