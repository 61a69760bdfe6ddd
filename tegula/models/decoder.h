// The decoder that Llama and its relatives share: embedding, blocks of attention and a feed-forward
// layer, a head. What a family is composed of are fields of a Decoder, from which its graph, and
// what the planner counts, follow.
//
//   pre:  x + f(n(x))     post: n(x + f(x))     both: x + n(f(n(x)))     behind: x + n(f(x))
//
// for f attention, then the feed-forward layer, and n a norm with weights of its own; side by side
// (pre alone), x + attention(n(x)) + ffn(n'(x)). [Vaswani et al. 2017, section 3; Xiong et al.
// 2020; Gemma Team 2024; OLMo Team 2024; Black et al. 2022]
#pragma once

#include <array>

#include "tegula/models/model.h"
#include "tegula/models/rotary.h"

namespace tegula {

enum class NormPlace : uint8_t { kPre, kPost, kBoth, kBehind };
// x/rms(x) · w; x/rms(x) · (1 + w), in f32; (x - mean)/deviation · w + b.
enum class NormKind : uint8_t { kRms, kRmsPlusOne, kLayer };
// Norms of queries and keys before they are turned: of each head, or of all together.
enum class QkNorm : uint8_t { kNone, kHead, kWidth };
// One weight for queries, keys and values: all heads' of each in turn, or head by head.
enum class FusedQkv : uint8_t { kNone, kInTurn, kByHead };

// What the parts of a layer are called; those of a name that is not here, as Llama's are.
struct LayerNames {
  std::string_view stem = "model.", layers = "layers.", final_norm = "norm";
  std::string_view attention = "self_attn.", qkv = "qkv_proj", out = "o_proj";
  std::string_view q = "q_proj", k = "k_proj", v = "v_proj";
  std::string_view ffn = "mlp.", up = "up_proj", down = "down_proj";
  // transformers names norms after the place where they stand.
  std::string_view input_norm = "input_layernorm", attention_norm = "post_attention_layernorm",
                   before_ffn = "pre_feedforward_layernorm",
                   behind_ffn = "post_feedforward_layernorm";
};

// What stands in place of a feed-forward layer (common/experts.h).
struct Experts {
  std::string_view at = "block_sparse_moe.", gate = "w1", up = "w3", down = "w2";
  bool is_normalised = true;  // a token's shares are divided by their sum
  int64_t shared_ff = 0;      // width of one that sees every token; 0: none
  // Whether a layer has some; null: all do. The others are dense_ff wide.
  bool (*are_in)(const ModelConfig&, int64_t layer) = nullptr;
  int64_t dense_ff = 0;
};

struct Decoder {
  NormKind norm = NormKind::kRms;
  NormPlace norms = NormPlace::kPre;
  bool has_norm_bias = false;
  bool is_parallel = false;
  bool sees_ahead = false;  // attention in both directions: ModelDef::sees_ahead
  QkNorm qk_norm = QkNorm::kNone;
  FusedQkv fused_qkv = FusedQkv::kNone;
  bool has_qkv_bias = false, has_out_bias = false, has_ffn_bias = false;
  // down(activation(gate(x)) · up(x)), or down(activation(up(x))); gate and up may be one weight.
  bool is_gated = true, has_fused_gate = false;
  Var (*activation)(Var x) = nullptr;                           // null: SiLU
  Var (*add_positions)(Context&, Var tokens, Var x) = nullptr;  // to the embedding [b s d]
  Rotary (*rotary)(const ModelConfig&, int64_t layer, int64_t longest) = rotary_of_all;  // else
  double embedding_scale = 1;
  double softmax_scale = 0;  // 0: 1/√head_dim
  double softcap = 0;        // of attention's scores; 0: none
  // Tokens that a layer's queries see, their own included; 0, or null: all.
  int64_t (*window)(const ModelConfig&, int64_t layer) = nullptr;
  LayerNames names = {};
  bool has_experts = false;
  Experts experts = {};
  bool is_sparse(const ModelConfig& m, int64_t layer) const {
    return has_experts && (experts.are_in == nullptr || experts.are_in(m, layer));
  }
};

// tokens [b s] -> the last hidden state [b s d], of the family's Decoder (ModelDef::decoder).
Var decoder_hidden(Context& c, Var tokens);
// A weight of its own, or the embedding's.
Var decoder_head(Context& c);

// x W^T (+ bias), W [n_out, n_in] as PyTorch keeps it. x: [t k] or [b s k].
Var decoder_linear(Context& c, Var x, const std::string& name, int64_t n_out, double stddev = 0.02,
                   bool has_bias = false);
// Standard deviation of the projections that end in the residual stream. [Radford et al. 2019]
double residual_stddev(const ModelConfig& config);

// Resolves the sizes that attention needs: fills in n_kv_heads, head_dim and d_ff (0: 8/3 d_model
// rounded up to 32), and checks that they fit together.
Status resolve_decoder(ModelConfig& config);
// The same, and that what is turned of a head are pairs, with a divisor each where there are some.
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
// Bounds c of attention's scores s and of logits z: c·tanh(s/c).
inline constexpr Setting kAttentionCap =
    Setting::number("attn_logit_softcapping", "attention-softcap",
                    "Bound c of attention's scores s, c·tanh(s/c); 0: none", Range::kNotNegative)
        .or_null();
inline constexpr Setting kLogitCap =
    Setting::number("final_logit_softcapping", "logit-softcap",
                    "Bound c of logits z, c·tanh(z/c); 0: none", Range::kNotNegative)
        .or_null();
// Softmax's scale is its root's inverse.
inline constexpr Setting kScoreScale = Setting::size("query_pre_attn_scalar", "", "", 1, 1 << 20);
}  // namespace setting
// Fills in layer_types where they are not said, and checks their number.
Status resolve_layer_types(ModelConfig& config, bool (*is_sliding)(const ModelConfig&, int64_t));
bool is_sliding_layer(const ModelConfig& config, int64_t layer);
// The window of a layer, by its type; that of every layer.
int64_t window_by_type(const ModelConfig& config, int64_t layer);
int64_t window_of_all(const ModelConfig& config, int64_t layer);
// The widest of the layers' windows; 0: none has one.
int64_t widest_window(const ModelConfig& config);
// Windows that count only where it is said that they do, and from a layer on: Qwen's. It fills in
// the types of layers.
namespace setting {
inline constexpr Setting kUsesWindow = Setting::on("use_sliding_window", "", "");
inline constexpr Setting kFirstWindow = Setting::size("max_window_layers", "", "", 0, 4096);
}  // namespace setting
Status resolve_windows(ModelConfig& config, bool (*is_sliding)(const ModelConfig&, int64_t));
bool is_from_first_window(const ModelConfig& config, int64_t layer);

// Biases of the feed-forward layer, where others than attention's are said; else they are alike.
namespace setting {
inline constexpr Setting kFfnBias = Setting::on("ffn_bias", "", "");
}  // namespace setting
// Experts as Qwen has them: a width of their own, and layers without them, by name or in between.
namespace setting {
inline constexpr Setting kDenseWidth = Setting::size("dense_ff", "", "", 0, 1 << 26);
inline constexpr Setting kSparseStep = Setting::size("decoder_sparse_step", "", "", 1, 4096);
inline constexpr Setting kDenseLayers = Setting::sizes("mlp_only_layers", 0, 4095);
inline constexpr Setting kNormalised = Setting::on("norm_topk_prob", "", "");
}  // namespace setting
Experts qwen_experts(const ModelConfig& config);
Status resolve_qwen_experts(ModelConfig& config);

// Llama's relatives compute SwiGLU and nothing else.
inline constexpr FixedKey kLlamaFixed[] = {{"hidden_act", R"("silu"|"swish")", true}};
// Where RoPE's base stands besides "rope_theta".
inline constexpr std::string_view kNestedTheta =
    "rope_parameters.rope_theta rope_scaling.rope_theta";
inline constexpr std::string_view kNestedShare =
    "rope_parameters.partial_rotary_factor rope_scaling.partial_rotary_factor";

// Attention's weights, as most families call them, and the tables are cut alike; the feed-forward
// layer's as a family's own list says.
template <size_t N>
constexpr std::array<Cut, N + 9> with_attention(const Cut (&own)[N]) {
  std::array<Cut, N + 9> all = {{{"q_proj.weight", 0, &setting::kHeads},
                                 {"q_proj.bias", 0, &setting::kHeads},
                                 {"k_proj.weight", 0, &setting::kKvHeads},
                                 {"k_proj.bias", 0, &setting::kKvHeads},
                                 {"v_proj.weight", 0, &setting::kKvHeads},
                                 {"v_proj.bias", 0, &setting::kKvHeads},
                                 {"o_proj.weight", 1, &setting::kHeads},
                                 {"embed_tokens.weight", 0},
                                 {"lm_head.weight", 0}}};
  for (size_t i = 0; i < N; ++i) all[i + 9] = own[i];
  return all;
}
inline constexpr auto kDecoderCuts = with_attention({{"gate_proj.weight", 0},
                                                     {"gate_proj.bias", 0},
                                                     {"up_proj.weight", 0},
                                                     {"up_proj.bias", 0},
                                                     {"down_proj.weight", 1}});
inline constexpr auto kQwenExpertCuts =
    with_attention({{"experts.gate_proj.weight", 0, &setting::kExperts},
                    {"experts.up_proj.weight", 0, &setting::kExperts},
                    {"experts.down_proj.weight", 0, &setting::kExperts}});

// Families of the decoder share this; `def` brings the rest. Where it says nothing else,
// config.json has the family's name and ranks cut weights as Llama's.
constexpr ModelDef decoder_family(ModelDef def) {
  def.hidden = decoder_hidden, def.head = decoder_head;
  if (def.hf_type.empty()) def.hf_type = def.name;
  if (def.cuts.empty()) def.cuts = kDecoderCuts;
  return def;
}
// The sizes that most families' config.json names alike, and then a family's own fields.
template <size_t N>
constexpr std::array<Field, N + 5> with_sizes(const Field (&own)[N]) {
  std::array<Field, N + 5> all = {{{&setting::kVocabSize, "vocab_size"},
                                   {&setting::kWidth, "hidden_size"},
                                   {&setting::kFfWidth, "intermediate_size"},
                                   {&setting::kLayers, "num_hidden_layers"},
                                   {&setting::kHeads, "num_attention_heads"}}};
  for (size_t i = 0; i < N; ++i) all[i + 5] = own[i];
  return all;
}
// The fields that Llama and those after it share, by what an absent key means, and then a family's
// own ones.
struct LlamaKeys {
  int64_t n_kv_heads = 0, head_dim = 0, context = 32768;
  double norm_eps = 1e-6, initial_norm_eps = norm_eps, rope_theta = 1e4;
  bool is_tied = false;
};
template <size_t N>
constexpr auto llama_fields(const LlamaKeys& k, const Field (&own)[N]) {
  Field all[N + 8] = {
      {&setting::kKvHeads, "num_key_value_heads", k.n_kv_heads},
      {&setting::kHeadDim, "head_dim", k.head_dim},
      {&setting::kContext, "max_position_embeddings", k.context},
      {&setting::kNormEps, "rms_norm_eps", k.norm_eps, k.initial_norm_eps},
      {&setting::kRopeTheta, "rope_theta", k.rope_theta, k.rope_theta, kNestedTheta},
      {&setting::kRopeScaling, ""},
      {&setting::kDropout, "attention_dropout", 0},
      {&setting::kTied, "tie_word_embeddings", k.is_tied, k.is_tied}};
  for (size_t i = 0; i < N; ++i) all[i + 8] = own[i];
  return with_sizes(all);
}

}  // namespace tegula
