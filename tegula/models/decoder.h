// The decoder that Llama and its relatives share: embedding, blocks of attention and a feed-forward
// layer, a head. A family describes its own as a Decoder.
//
//   pre:  x + f(n(x))        post: n(x + f(x))        both: x + n(f(n(x)))
//
// for f attention, then the feed-forward layer, and n a norm with weights of its own. [Vaswani et
// al. 2017, section 3; Xiong et al. 2020; Gemma Team 2024]
#pragma once

#include "tegula/models/model.h"

namespace tegula {

enum class NormPlace : uint8_t { kPre, kPost, kBoth };

struct Decoder {
  Var (*norm)(Context&, Var x, const std::string& name);
  Var (*ffn)(Context&, const Decoder&, Var x, const std::string& at);  // at: "model.layers.3."
  Var (*activation)(Var x);
  NormPlace norms = NormPlace::kPre;
  bool has_qkv_bias = false, has_bias = false;  // the second: of all other linear layers
  // The embedding [b s d] with positions added; null: queries and keys are turned instead.
  Var (*add_positions)(Context&, Var tokens, Var x) = nullptr;
  double embedding_scale = 1;
  double softmax_scale = 0;  // 0: 1/√head_dim
  double softcap = 0;        // of attention's scores; 0: none
  // Tokens that a layer's queries see, their own included; 0, or null: all.
  int64_t (*window)(const ModelConfig&, int64_t layer) = nullptr;
};

// RMS norms before attention and the feed-forward layer, SwiGLU, rotary positions. [Touvron et al.
// 2023]
Decoder llama_decoder();

// tokens [b s] -> the last hidden state [b s d]
Var decoder_hidden(Context& c, Var tokens, const Decoder& d);
// A weight of its own, or the embedding's.
Var decoder_head(Context& c);

// x W^T (+ bias), W [n_out, n_in] as PyTorch keeps it. x: [t k] or [b s k].
Var decoder_linear(Context& c, Var x, const std::string& name, int64_t n_out, double stddev = 0.02,
                   bool has_bias = false);
// down(activation(gate(x)) · up(x)), and down(activation(up(x))).
Var gated_ffn(Context& c, const Decoder& d, Var x, const std::string& at);
Var dense_ffn(Context& c, const Decoder& d, Var x, const std::string& at);
// Standard deviation of the projections that end in the residual stream. [Radford et al. 2019]
double residual_stddev(const ModelConfig& config);

// Resolves the sizes that attention needs: fills in n_kv_heads, head_dim and d_ff (0: 8/3 d_model
// rounded up to 32), and checks that they fit together.
Status resolve_decoder(ModelConfig& config);
// The same, and that heads are pairs to turn.
Status resolve_rotary(ModelConfig& config);

namespace setting {
// Tokens that a query sees, its own included.
inline constexpr Setting kWindow =
    Setting::size("sliding_window", "window", "Tokens that attention sees at most; 0: all", 0,
                  1 << 28)
        .or_null();
// Layer by layer, whether its attention has the window.
inline constexpr Setting kLayerTypes =
    Setting::texts("layer_types", "full_attention|sliding_attention");
}  // namespace setting
// Fills in layer_types where they are not said, and checks their number.
Status resolve_layer_types(ModelConfig& config, bool (*is_sliding)(const ModelConfig&, int64_t));
// The window of a layer, by its type.
int64_t window_by_type(const ModelConfig& config, int64_t layer);

// Llama's relatives compute SwiGLU and nothing else.
inline constexpr FixedKey kLlamaFixed[] = {{"hidden_act", R"("silu"|"swish")", true}};
// Where RoPE's base stands besides "rope_theta".
inline constexpr std::string_view kNestedTheta =
    "rope_parameters.rope_theta rope_scaling.rope_theta";

inline constexpr Cut kDecoderCuts[] = {{"q_proj.weight", 0, &setting::kHeads},
                                       {"q_proj.bias", 0, &setting::kHeads},
                                       {"k_proj.weight", 0, &setting::kKvHeads},
                                       {"k_proj.bias", 0, &setting::kKvHeads},
                                       {"v_proj.weight", 0, &setting::kKvHeads},
                                       {"v_proj.bias", 0, &setting::kKvHeads},
                                       {"o_proj.weight", 1, &setting::kHeads},
                                       {"gate_proj.weight", 0},
                                       {"gate_proj.bias", 0},
                                       {"up_proj.weight", 0},
                                       {"up_proj.bias", 0},
                                       {"down_proj.weight", 1},
                                       {"embed_tokens.weight", 0},
                                       {"lm_head.weight", 0}};

}  // namespace tegula
