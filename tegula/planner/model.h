// ModelSpec: what a language model costs depends on these numbers alone. Parameters are counted
// from them; for a family with a ModelDef the same count comes from its graph (model_config.h) and
// the two must agree.
//
// Of a decoder, with h = d_model, a query heads and k key/value heads of d, feed-forward width f of
// which n_ff_matrices matrices exist (2, gated 3), E experts and K of them a token:
//   attention  h·a·d + 2·h·k·d + a·d·h   (+ biases, + h·a·d for relative positions)
//   ff         n_ff_matrices·h·f (+ biases), E times with a router h·E
//   norms      norms_per_layer·h, twice that with biases
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tegula/base/result.h"

namespace tegula::planner {

enum class ModelKind : uint8_t { kDecoder, kLstm, kMlp };

struct ModelSpec {
  std::string name;    // a preset's, or a path
  std::string family;  // the ModelDef that executes it; empty: it is only counted and priced
  ModelKind kind = ModelKind::kDecoder;
  int64_t n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0;
  int64_t vocab_size = 0;
  int64_t max_seqlen = 0;  // the longest sequence that it takes
  int64_t n_ff_matrices = 2;
  int64_t n_experts = 1, n_experts_per_token = 1;
  int64_t n_positions = 0;      // rows of a learned table; 0: none
  int64_t norms_per_layer = 2;  // 1 where attention and feed-forward layer stand side by side
  int64_t window = 0;           // tokens that attention sees at most; 0: all
  int64_t n_window_layers = 0;  // how many layers have the window
  bool is_tied = false;         // one table for tokens in and out
  bool has_norm_bias = false;   // layer norms, not RMS norms
  bool has_qkv_bias = false, has_bias = false;  // the second: of all other products of a layer
  bool has_embedding_norm = false;              // BLOOM
  bool has_final_norm = true;
  bool has_relative_positions = false;  // Transformer-XL's: a projection and two vectors a layer
  bool has_dropout = false;             // masks are saved for backward

  bool is_moe() const { return n_experts > 1; }
  int64_t q_width() const { return n_heads * head_dim; }
  int64_t kv_width() const { return n_kv_heads * head_dim; }

  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

// Parameters by place. `expert` is one expert of one layer; a dense feed-forward layer is the only
// expert, with no router.
struct ParamCount {
  int64_t embedding = 0, positions = 0;  // the token table; positions and its norm
  int64_t attention = 0, router = 0, expert = 0, norms = 0;  // of one layer
  int64_t final_norm = 0, head = 0;                          // head 0: tied
  int64_t layer = 0, active_layer = 0, total = 0, active = 0;
};

// Errors: sizes that are not positive, or whose product passes 2^62, by name and number.
Result<ParamCount> count_params(const ModelSpec& model);

// Bytes of keys and values that a token leaves behind in all layers, 2·L·k·d·bytes. 0 for models
// without attention.
double kv_bytes_per_token(const ModelSpec& model, double bytes_per_element);

}  // namespace tegula::planner
