// The sizes of a language model: what its parameters and its operations depend on, and nothing
// else.
#pragma once

#include <cstdint>

namespace tegula {

struct DecoderSizes {
  int64_t n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0;
  int64_t vocab_size = 0;
  int64_t max_seqlen = 0;  // the longest sequence that it takes
  int64_t n_ff_matrices = 2;
  int64_t n_experts = 1, n_experts_per_token = 1;
  int64_t n_positions = 0;      // rows of a learned table; 0: none
  int64_t n_types = 0;          // of tokens, rows of another one
  int64_t norms_per_layer = 2;  // 1 where attention and feed-forward layer stand side by side
  // Multi-head latent attention: queries by a product of rank q_rank (0: of none), keys and values
  // by one of rank kv_rank, of which a token's cache holds that and rope_dim elements, which are
  // turned and every head's. [DeepSeek-AI 2024, section 2.1]
  int64_t kv_rank = 0, q_rank = 0, rope_dim = 0;
  int64_t v_head_dim = 0;  // of values; 0: head_dim
  int64_t shared_ff = 0;   // width of a feed-forward layer beside the experts, for every token
  int64_t n_dense_layers = 0, dense_ff = 0;  // layers with one of that width in place of experts
  // Parameters of a layer that no product has: norms of queries and keys, sinks, a router's biases.
  int64_t other_attention = 0, other_router = 0;
  int64_t window = 0;           // tokens that attention sees at most; 0: all
  int64_t n_window_layers = 0;  // how many layers have the window
  bool is_tied = false;         // one table for tokens in and out
  bool has_norm_bias = false;   // of layer norms
  bool has_layer_norm = false;  // not RMS norms
  bool has_norm_weights = true;
  bool has_qkv_bias = false, has_bias = false;  // the second: of all other products of a layer
  bool has_embedding_norm = false;              // BLOOM
  bool has_final_norm = true;
  bool sees_ahead = false;  // attention in both directions
  // BERT: a product, a norm and their biases before the product that logits are, and its bias.
  bool has_head_transform = false;
  bool has_relative_positions = false;  // Transformer-XL's: a projection and two vectors a layer
  bool has_dropout = false;             // masks are saved for backward

  bool is_moe() const { return n_experts > 1; }
  bool is_latent() const { return kv_rank > 0; }
  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t q_width() const { return n_heads * head_dim; }
  int64_t kv_width() const { return n_kv_heads * head_dim; }  // of keys
  int64_t v_width() const { return n_kv_heads * value_dim(); }
  int64_t o_width() const { return n_heads * value_dim(); }
  double dense_share() const {
    return static_cast<double>(n_dense_layers) / static_cast<double>(n_layers);
  }

  friend bool operator==(const DecoderSizes&, const DecoderSizes&) = default;
};

}  // namespace tegula
